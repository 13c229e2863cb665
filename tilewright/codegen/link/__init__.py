"""Object files put together without tools: relocatable ELF files and archives of them."""

# pyright: reportUnusedImport=false
from tilewright.codegen.link.archive import archive
from tilewright.codegen.link.merge import Data, merge
