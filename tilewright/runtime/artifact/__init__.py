"""Artifacts: compiled models as files. `docs/artifact.md` describes the format."""

# pyright: reportUnusedImport=false
from tilewright.runtime.artifact.contents import (
    Build,
    CaseKey,
    CasesContents,
    CompiledContents,
    Contents,
    HostedContents,
    Recording,
)
from tilewright.runtime.artifact.read import Artifact, StoredBuild
from tilewright.runtime.artifact.save import save_models
from tilewright.runtime.artifact.seal import checksum_of, recording_seal, seal_in, seal_of
from tilewright.runtime.artifact.sign import Key, Keys, make_key_pair
