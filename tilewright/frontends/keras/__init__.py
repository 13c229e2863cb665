"""Keras models, `.keras` and `.h5`, as graphs: built layer by layer from their configurations.

    load.py         a path or bytes -> a configuration, and weights that are read when needed
    weights.py      the HDF5 files: which datasets are the weights of which layer
    structure.py    how the layers of a model call each other, in Keras 2 and in Keras 3
    importer.py     walks the calls; nested models, shared layers, masks
    layer.py        what a converter sees of a layer
    table.py        which converter serves which layer
    activations.py  activation functions by name
    front_end.py    the row of this folder in the table of front ends
    layers/         the converters, one family of layers a file

Keras is not needed. `h5py` is an optional extra and is imported when a model is read.
"""

# pyright: reportUnusedImport=false
from tilewright.frontends.keras.from_keras import from_keras
from tilewright.frontends.keras.front_end import FRONT_END
