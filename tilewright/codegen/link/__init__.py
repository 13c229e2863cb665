"""Linking without tools: relocatable files, and archives of them."""

# pyright: reportUnusedImport=false
from tilewright.codegen.link.archive import archive
from tilewright.codegen.link.data import DataSymbol
from tilewright.codegen.link.members import Member, members
from tilewright.codegen.link.merge import merge
