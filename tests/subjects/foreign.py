"""Models as other people write them, one for each convention there is: what they encode is always the same code.

Each reads column and row of the white pixel of an 8x8 image (two used latents) and has a third, unused one. ``decode``
draws a soft dot there.
"""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

PLACES = torch.arange(8.0)
LOGVAR = torch.tensor([-6.0, -6.0, 0.0])


def centre(x):
    """Column and row of the light in images (n, 1, 8, 8), and a zero."""
    x = x.to(torch.float32)
    total = x.sum((1, 2, 3))
    column, row = x.sum((1, 2)) @ PLACES / total, x.sum((1, 3)) @ PLACES / total
    return torch.stack([column - 3.5, row - 3.5, torch.zeros_like(row)], 1)


def dot(z):
    """A soft dot (n, 1, 8, 8) where the code says."""
    columns, rows = (-(PLACES - 3.5 - z.float()[:, i, None]).square() for i in (0, 1))
    return (rows[:, None, :, None] + columns[:, None, None, :]).exp()


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def posterior(self, x):
        mean = centre(x) * self.scale.float()
        return mean, LOGVAR.expand_as(mean)

    def decode(self, z):
        return dot(z)


class Plain(Base):
    """A deterministic code."""

    def encode(self, x):
        return self.posterior(x)[0]


class Pair(Base):
    """(mu, logvar), flattened with .view as most published code does: not every memory layout survives that."""

    def encode(self, x):
        x = x.view(x.size(0), -1).view(-1, 1, 8, 8)
        return self.posterior(x)


class ListOfTwo(Base):
    def encode(self, x):
        return list(self.posterior(x))


class SampleFirst(Base):
    """(z, mu, logvar)."""

    def encode(self, x):
        mean, logvar = self.posterior(x)
        return mean + torch.randn_like(mean) * (logvar / 2).exp(), mean, logvar


class SampleLast(Base):
    """(mu, logvar, z)."""

    def encode(self, x):
        mean, logvar = self.posterior(x)
        return mean, logvar, mean + torch.randn_like(mean) * (logvar / 2).exp()


class Named(Base):
    """A named tuple whose order would mislead."""

    def encode(self, x):
        mean, logvar = self.posterior(x)
        return namedtuple("Output", ["z", "log_var", "mu"])(mean + 5, logvar, mean)


class Distribution(Base):
    def encode(self, x):
        mean, logvar = self.posterior(x)
        return torch.distributions.Normal(mean, (logvar / 2).exp())


class Independent(Base):
    def encode(self, x):
        mean, logvar = self.posterior(x)
        return torch.distributions.Independent(torch.distributions.Normal(mean, (logvar / 2).exp()), 1)


class Mapping(Base):
    """As pythae's encoders answer."""

    def encode(self, x):
        mean, logvar = self.posterior(x)
        return {"embedding": mean, "log_covariance": logvar}

    def decode(self, z):
        return {"reconstruction": dot(z)}


@dataclass
class Answer:
    loc: torch.Tensor
    scale: torch.Tensor


class Attributes(Base):
    def encode(self, x):
        mean, logvar = self.posterior(x)
        return Answer(mean, (logvar / 2).exp())


class Transformer(Base):
    """Tokens and a pooled vector, as language models answer."""

    def encode(self, x):
        mean = self.posterior(x)[0]
        return {"last_hidden_state": torch.stack([mean * 0 + 9, mean], 1), "pooler_output": mean}


class Tokens(Base):
    def encode(self, x):
        mean = self.posterior(x)[0]
        return {"last_hidden_state": torch.stack([mean - 1, mean + 1], 1)}


class Arrays(Base):
    """NumPy, and images channels last."""

    def encode(self, x):
        return self.posterior(x)[0].numpy()

    def decode(self, z):
        return dot(z).permute(0, 2, 3, 1).numpy()


class ForwardOnly(Base):
    """forward returns (reconstruction, mu, logvar); there is no encode."""

    decode = None

    def forward(self, x):
        mean, logvar = self.posterior(x)
        return dot(mean), mean, logvar


class Classifier(nn.Module):
    """Nothing but forward; the code is a layer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(64, 3, bias=False))
        self.head = nn.Linear(3, 10)
        places = torch.stack([PLACES.repeat(8) - 3.5, PLACES.repeat_interleave(8) - 3.5, torch.zeros(64)])
        with torch.no_grad():
            self.features[1].weight.copy_(places)

    def forward(self, x):
        return self.head(torch.relu(self.features(x)))


class Parts(nn.Module):
    """An encoder and a decoder as sub-modules, and no methods."""

    class Encoder(Base):
        def forward(self, x):
            return self.posterior(x)

    class Decoder(nn.Module):
        def forward(self, z):
            return dot(z).flatten(1)

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = self.Encoder(), self.Decoder()


class Unbound(nn.Module):
    """One tensor of alternating means and log-variances, which only forward tells apart; there is no encode."""

    class Encoder(Base):
        def forward(self, x):
            return torch.stack(self.posterior(x), 2).flatten(1)

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = self.Encoder(), Parts.Decoder()

    def forward(self, x):
        mean, logvar = self.encoder(x).view(len(x), 3, 2).unbind(-1)
        return self.decoder(mean), x, mean, logvar


class ForwardByName(Unbound):
    """The same, said by names."""

    def forward(self, x):
        reconstruction, _, mean, logvar = super().forward(x)
        return {"x_hat": reconstruction, "mu": mean, "log_var": logvar}


class Features(Unbound):
    """A classifier-like pair from forward is no posterior: the encoder stays what encodes."""

    def forward(self, x):
        features = self.encoder(x)
        return features[:, :2], features[:, 2:4]


class Mismatched(Unbound):
    """A decoder that does not take what the encoder gives, and a forward that wants more than images."""

    def __init__(self):
        super().__init__()
        self.decoder = nn.Linear(3, 64)

    def forward(self, x, labels):
        return self.decoder(labels)


class Half(Base):
    """Weights in half precision, and an insistence on inputs of the same kind."""

    def __init__(self):
        super().__init__()
        self.half()

    def encode(self, x):
        assert x.dtype == self.scale.dtype
        return self.posterior(x)

    def decode(self, z):
        assert z.dtype == self.scale.dtype
        return dot(z).half()


class Brain(Half):
    def __init__(self):
        super().__init__()
        self.to(torch.bfloat16)


class Double(Half):
    def __init__(self):
        super().__init__()
        self.double()


class Logits(Pair):
    """The decoder gives logits."""

    def decode(self, z):
        return torch.logit(dot(z).clamp(1e-4, 1 - 1e-4))


class Symmetric(Pair):
    """A tanh at the end: values in [-1, 1]."""

    def decode(self, z):
        return 2 * dot(z) - 1


class Gaussian(Pair):
    """Values that leave [0, 1] a little on both sides."""

    def decode(self, z):
        return dot(z) + 0.1 * torch.linspace(-1, 1, 64).reshape(1, 8, 8)


class Nested(Pair):
    """A nn.DataParallel around the model."""

    def __new__(cls):
        return nn.DataParallel(Pair())


def function(x):
    """A plain function from images to codes."""
    return centre(x)


def compiled():
    """What torch.compile returns, without needing a compiler."""
    return torch.compile(Pair(), backend="eager")


class Sequential(nn.Module):
    """Layers used twice, a recurrent one, and activations that overwrite their input."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.rows = nn.GRU(8, 12)
        self.dense = nn.Linear(96, 96)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(96, 4)

    def forward(self, x):
        rows = self.rows(x[:, 0].transpose(0, 1))[0].transpose(0, 1).flatten(1)
        return self.head(self.act(self.dense(self.act(self.dense(rows)))))


class Touchy(Pair):
    """Everything an instrument must leave alone: batch statistics, dropout, frozen parts, modes."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(1))
        self.scale.requires_grad_(False)
        self.norm.eval()

    def encode(self, x):
        self.calls += 1
        assert not self.drop.training
        return self.posterior(x + 0 * self.drop(self.norm(x)))

    def decode(self, z):
        assert not self.drop.training
        return self.drop(dot(z))


class Broken(Pair):
    def encode(self, x):
        raise KeyError("no such thing")


class Flat784(Pair):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(784, 3)

    def encode(self, x):
        return self.dense(x.view(-1, 784))


class Odd(Pair):
    """A tuple nobody could read."""

    def encode(self, x):
        mean, logvar = self.posterior(x)
        return mean, np.arange(3), logvar[:, :2]


class NeedsArguments(Pair):
    def __init__(self, latents, width=3):
        super().__init__()


# Pairs whose places have no names: what they hold has to be found out


def unnamed(*parts):
    """A tuple as most helpers return it: nothing in the return statement says what is what."""
    return parts


class Deviations(Base):
    """(mean, std), and nothing that says so."""

    def encode(self, x):
        mean, logvar = self.posterior(x)
        return unnamed(mean, (logvar / 2).exp())


class NamedDeviations(Base):
    def encode(self, x):
        mu, logvar = self.posterior(x)
        sigma = (logvar / 2).exp()
        return mu, sigma


class NamedVariances(Base):
    """fc_var makes log-variances, as in much published code."""

    def encode(self, x):
        return self.fc_mu(x), self.fc_var(x)

    def fc_mu(self, x):
        return self.posterior(x)[0]

    def fc_var(self, x):
        return self.posterior(x)[1]


class SampledDeviations(Deviations):
    """The model itself says how it draws, though only in training."""

    def reparameterize(self, mu, scale):
        return mu + torch.randn_like(mu) * scale if self.training else mu


class SampledLogDeviations(Base):
    """(mean, logstd), as policies return it: negative numbers that are no log-variances."""

    def encode(self, x):
        mean, logvar = self.posterior(x)
        return unnamed(mean, logvar / 2)

    def _sample_gauss(self, mu, log_std):
        noise = torch.randn_like(mu)
        return mu + noise * log_std.exp(), noise


class DecodedVariances(nn.Module):
    """(mean, var): only what the decoder gets while the model runs forward shows it."""

    def __init__(self):
        super().__init__()
        self.base, self.decoder = Base(), Parts.Decoder()

    def encode(self, x):
        mean, logvar = self.base.posterior(x)
        return unnamed(mean, logvar.exp())

    def forward(self, x):
        mean, var = self.encode(x)
        return self.decoder(mean + torch.randn_like(mean) * var.sqrt())


class TanhFeatures(Base):
    """A code and features of the same size, which are no log-variances at all."""

    def encode(self, x):
        mean = self.posterior(x)[0]
        return unnamed(mean, torch.tanh(mean.roll(1, 0)))


class LogProbabilities(Base):
    def encode(self, x):
        mean = self.posterior(x)[0]
        return unnamed(mean, mean.log_softmax(1))


class SampleAndMean(Base):
    def encode(self, x):
        mean, logvar = self.posterior(x)
        return unnamed(mean + torch.randn_like(mean) * (logvar / 2).exp(), mean)


class RestingSample(Base):
    """(z, mu, logvar) of a model that does not sample in evaluation mode."""

    def encode(self, x):
        mean, logvar = self.posterior(x)
        return unnamed(mean, mean.clone(), logvar)


# Shapes of well-known libraries


class Flow(nn.Module):
    """(z, log_det) from forward, as large as the data, and an inverse."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.linspace(-1, 1, 64).reshape(1, 8, 8))

    def forward(self, x):
        return 2 * x + self.shift, torch.full((len(x),), 64 * 0.6931)

    def inverse(self, z):
        return (z - self.shift) / 2, torch.full((len(z),), -64 * 0.6931)


class FlowOfPoints(nn.Module):
    """encode returns (z, log_det) with a column of log-determinants."""

    def encode(self, x):
        return unnamed(3 * x, torch.full((len(x), 1), -2.0))


class Spatial(Base):
    """A code of shape (channels, height, width) that only a convolutional decoder takes, as of a VQ-VAE: the quantised
    vectors between a loss and indices."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 1, 2, 2, bias=False)
        with torch.no_grad():
            self.up.weight.copy_(torch.eye(4).reshape(4, 1, 2, 2))

    def encode(self, x):
        code = torch.pixel_unshuffle(x, 2)
        return unnamed(torch.zeros(()), code, code.argmax(1), torch.zeros(len(x) * 16, 7))

    def decode(self, z):
        return self.up(z)


class Indices(nn.Module):
    """Whole numbers of a codebook."""

    def encode(self, x):
        return torch.pixel_unshuffle(x, 2).argmax(1)

    def decode(self, z):
        return torch.pixel_shuffle(nn.functional.one_hot(z, 4).permute(0, 3, 1, 2).float(), 2)


class Diagonal:
    """A distribution as diffusers writes it."""

    def __init__(self, mean, logvar):
        self.mean, self.logvar, self.deterministic = mean, logvar, False
        self.std, self.var = (logvar / 2).exp(), logvar.exp()

    def sample(self, generator=None):
        return self.mean + self.std * torch.randn_like(self.mean)


class Output(dict):
    """A mapping whose entries are attributes as well."""

    def __getattr__(self, name):
        return self[name]


class Latent(Spatial):
    """diffusers: a distribution inside of a named answer, spatial, and a decoder that answers by name."""

    def encode(self, x):
        code = torch.pixel_unshuffle(x, 2)
        return Output(latent_dist=Diagonal(code, torch.full_like(code, -5.0)))

    def decode(self, z):
        return Output(sample=self.up(z))


class VisionTransformer(Base):
    """transformers: an encoder that takes tokens, a forward that answers by name."""

    class Tokens(nn.Module):
        def forward(self, hidden):
            return Output(last_hidden_state=hidden @ torch.eye(3))

    def __init__(self):
        super().__init__()
        self.encoder = self.Tokens()

    decode = None

    def forward(self, pixel_values, noise=None):
        hidden = self.encoder(self.posterior(pixel_values)[0][:, None])
        return Output(last_hidden_state=hidden.last_hidden_state, pooler_output=hidden.last_hidden_state[:, 0])


class Convolutions(VisionTransformer):
    """An encoder that takes images too, but answers something else than the model does."""

    class Tokens(nn.Module):
        def forward(self, hidden):
            return Output(last_hidden_state=hidden + 7)


class WithHead(nn.Module):
    """A head over a base model, whose own answer has no code in it."""

    base_model_prefix = "vit"

    def __init__(self):
        super().__init__()
        self.vit = VisionTransformer()
        self.head = nn.Linear(3, 10)

    def forward(self, pixel_values):
        return Output(loss=None, logits=self.head(self.vit(pixel_values).pooler_output))


# Models that do not keep what an encoder promises


class AlwaysDropping(Base):
    def encode(self, x):
        return nn.functional.dropout(self.posterior(x)[0] + 1, 0.5, training=True)


class AlwaysNormalising(Base):
    """A batch normalisation that looks at the batch even in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3, track_running_stats=False)

    def encode(self, x):
        code = self.posterior(x)[0]
        return (code - code.mean(0)) / (code.std(0, correction=0) + 1)


class Squeezing(Base):
    """One example alone loses its first axis."""

    def encode(self, x):
        return self.posterior(x)[0].squeeze()


class BadDecoder(Pair):
    def decode(self, z):
        raise RuntimeError("the decoder is broken")
