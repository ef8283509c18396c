"""Worlds: data whose causes are known, rendered on demand; and readers of real files."""

from polariscope.worlds.factors import Factor as Factor
from polariscope.worlds.factors import FactorGrid as FactorGrid
from polariscope.worlds.given import as_world as as_world
from polariscope.worlds.observations import as_observations as as_observations
from polariscope.worlds.targets import Examples as Examples
from polariscope.worlds.world import ArrayWorld as ArrayWorld
from polariscope.worlds.world import Batches as Batches
from polariscope.worlds.world import GridWorld as GridWorld
from polariscope.worlds.world import World as World
from polariscope.worlds.world import sample as sample
from polariscope.worlds.world import stream as stream
from polariscope.worlds.world import to_tensor as to_tensor
from polariscope.worlds.world import worlds as worlds
