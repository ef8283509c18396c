"""Models of other libraries, made by those libraries: each is examined as its user would.

They are in the extra [bench] and not in the test extra (some ask for a torch of their own): 'make test-libraries'
installs them, and what is not installed is skipped.
"""

import numpy as np
import pytest
import torch
from torch import nn

import polariscope
from polariscope.subjects import as_subject
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.world import to_tensor

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries themselves


@pytest.fixture(scope="module")
def images():
    """Images and two factors."""
    world = MiniSprites()
    index = np.arange(0, len(world), max(1, len(world) // 300))[:300]
    return world.observe(index), world.factors_of(index)


def library(name):
    return pytest.importorskip(name, reason=f"{name} is not installed: its models are not tried", exc_type=ImportError)


def test_a_lightning_module(images):
    lightning = library("pytorch_lightning")

    class Mine(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters()
            self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(images[0][0].size, 6))
            self.decoder = nn.Linear(3, images[0][0].size)

        def forward(self, x):
            mean, logvar = self.encoder(x).chunk(2, 1)
            z = mean + torch.randn_like(mean) * (logvar / 2).exp()
            return self.decoder(z), mean, logvar

        def training_step(self, batch, number):
            return self(batch[0])[0].square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    model = Mine()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(to_tensor(images[0][:16]).contiguous()), 8)
    trainer = lightning.Trainer(max_steps=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, accelerator="cpu")  # fmt: skip
    trainer.fit(model, data)
    result = polariscope.examine(model, *images, measured=["mig"])
    mean, logvar = model.encoder(to_tensor(images[0]).contiguous()).chunk(2, 1)
    np.testing.assert_allclose(result.representation.mean, mean.detach(), atol=1e-5)
    np.testing.assert_allclose(result.representation.var, logvar.exp().detach(), rtol=1e-4)
    assert model.trainer is trainer  # as it came


def test_a_pythae_model(images):
    models = library("pythae.models")
    side = images[0].shape[-2:]
    model = models.BetaVAE(models.BetaVAEConfig(input_dim=(1, *side), latent_dim=3, beta=2.0))
    result = polariscope.examine(model, *images, measured=["mig"])
    with torch.no_grad():
        encoded = model.eval().encoder(to_tensor(images[0]).contiguous())
    np.testing.assert_allclose(result.representation.mean, encoded.embedding, atol=1e-5)
    np.testing.assert_allclose(result.representation.var, encoded.log_covariance.exp(), rtol=1e-4)
    assert result.traversals is not None
    assert result.traversals.shape == (3, 9, 1, *side)


@pytest.fixture(scope="module")
def vision():
    """A small vision transformer, built from its configuration: nothing is fetched."""
    transformers = library("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=4,
        num_channels=1,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers, transformers.ViTModel(config).eval()


def test_a_hugging_face_encoder_from_its_configuration(vision):
    _, model = vision
    x = np.random.default_rng(0).random((40, 1, 16, 16), np.float32)
    result = polariscope.examine(model, x, measured=["effective-rank"])
    with torch.no_grad():
        output = model(torch.from_numpy(x))
    outcome = result.representation.mean
    choices = [output.pooler_output, output.last_hidden_state.mean(1)]
    assert any(np.allclose(outcome, one, atol=1e-4) for one in choices)


def test_a_hugging_face_encoder_from_a_folder(vision, tmp_path, monkeypatch):
    transformers, model = vision
    model.save_pretrained(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    again = transformers.ViTModel.from_pretrained(tmp_path, local_files_only=True)
    x = np.random.default_rng(0).random((40, 1, 16, 16), np.float32)
    first, second = (polariscope.examine(m, x, measured=["effective-rank"]).representation.mean for m in (model, again))
    np.testing.assert_allclose(first, second, atol=1e-5)


def test_a_scikit_learn_transformer(images):
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = images[0].reshape(len(images[0]), -1) / 255.0
    pca = PCA(4, random_state=0).fit(rows)
    result = polariscope.examine(pca, *images, measured=["mig", "effective-rank"])
    np.testing.assert_allclose(result.representation.mean, pca.transform(rows), atol=1e-4)
    assert result.reconstructions is not None  # inverse_transform decodes
    chain = make_pipeline(StandardScaler(with_std=False), PCA(4, random_state=0)).fit(rows)
    other = polariscope.examine(chain, *images, measured=["mig"])
    np.testing.assert_allclose(abs(other.representation.mean), abs(result.representation.mean), atol=1e-3)


def test_an_array_of_codes(images):
    codes = np.random.default_rng(0).normal(size=(len(images[0]), 5))
    result = polariscope.examine(codes, *images, measured=["mig"])
    np.testing.assert_allclose(result.representation.mean, codes, atol=1e-6)


class Stage(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, 2, 1)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


class TimmStyle(nn.Module):
    """The shape of a model of timm: ``forward_features``, ``forward_head``, a classifier called ``fc`` that can be
    reset, and ``num_features``. (timm itself needs torchvision, which does not load beside CPU torch.)"""

    def __init__(self, num_classes: int = 3, in_chans: int = 1) -> None:
        super().__init__()
        self.num_features = 12
        self.stem, self.layer1 = Stage(in_chans, 8), Stage(8, self.num_features)
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.num_features, num_classes)

    def get_classifier(self):
        return self.fc

    def forward_features(self, x):
        return self.layer1(self.stem(x))

    def forward_head(self, x, pre_logits: bool = False):
        x = self.global_pool(x).flatten(1)
        return x if pre_logits else self.fc(x)

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


def test_a_module_in_the_style_of_timm(images):
    torch.manual_seed(0)
    model = TimmStyle()
    x = to_tensor(images[0]).contiguous()
    subject = as_subject(model, encode="global_pool")
    result = polariscope.examine(subject, *images, measured=["mig"])
    with torch.no_grad():
        model.eval()
        features = model.forward_head(model.forward_features(x), pre_logits=True)
    np.testing.assert_allclose(result.representation.mean, features, atol=1e-5)
    named = polariscope.examine(as_subject(model, encode="layer1"), *images, measured=["mig"])
    assert named.representation.latents == 12 * np.prod(model.forward_features(x[:1]).shape[2:])
    same = polariscope.compare(subject, subject, images[0], count=100)
    assert same.verdict == "nearly the same"
