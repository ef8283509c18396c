"""Networks: plain ``nn.Module`` encoders and decoders, posteriors and likelihoods, and the autoencoder they form."""

from polariscope.nets.architecture import Architecture as Architecture
from polariscope.nets.architecture import architectures as architectures
from polariscope.nets.autoencoder import Autoencoder as Autoencoder
from polariscope.nets.autoencoder import AutoencoderConfig as AutoencoderConfig
from polariscope.nets.likelihood import Bernoulli as Bernoulli
from polariscope.nets.likelihood import Gaussian as Gaussian
from polariscope.nets.posterior import Diagonal as Diagonal
from polariscope.nets.posterior import Full as Full
from polariscope.nets.posterior import Point as Point
from polariscope.nets.posterior import Posterior as Posterior
