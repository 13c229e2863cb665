"""Reading assembly: functions, their basic blocks, and the loops among these."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LABEL = re.compile(r"^(\.?[A-Za-z_][\w.$]*):")
_TARGET = re.compile(r"(\.L\w+)\s*$")
#: Jumps of x86-64 and AArch64 to a label.
_JUMPS = re.compile(r"^(?:j[a-z]+|b(?:\.[a-z]+)?|cbn?z|tbn?z)$")
_FMAS = re.compile(r"^(?:vfn?m(?:add|sub)\d+[ps][sd]|fml[as])$")
_FRAME = re.compile(r"(?:movq\s+%rsp,\s*%rbp|(?:mov|add)\s+x29,\s*sp)")


@dataclass
class Instruction:
    """A mnemonic with its operands as text."""

    name: str
    operands: str

    @property
    def is_fma(self) -> bool:
        return bool(_FMAS.match(self.name))

    @property
    def jumps_to(self) -> str | None:
        found = _TARGET.search(self.operands)
        return found[1] if found and _JUMPS.match(self.name) else None

    @property
    def accumulator(self) -> str:
        """What an FMA adds to: the last operand of x86-64's, the first of AArch64's."""
        parts = re.split(r",\s*(?![^(]*\))", self.operands)
        register = parts[-1] if "%" in self.operands else parts[0]
        return re.sub(r"\..*", "", register).strip()


@dataclass
class BasicBlock:
    """Instructions from a label, or from after a jump, to the next jump or label."""

    label: str
    instructions: list[Instruction] = field(default_factory=list[Instruction])

    @property
    def fmas(self) -> list[Instruction]:
        return [i for i in self.instructions if i.is_fma]

    @property
    def is_loop(self) -> bool:
        """Whether it jumps back to its own start."""
        return any(i.jumps_to == self.label for i in self.instructions)


@dataclass
class AssembledFunction:
    """A function as its basic blocks, in the order of the text."""

    name: str
    blocks: list[BasicBlock] = field(default_factory=list[BasicBlock])

    def add(self, instruction: Instruction) -> None:
        """Append; what follows a jump is a block of its own, without a label."""
        last = self.blocks[-1].instructions
        if last and last[-1].jumps_to is not None:
            self.blocks.append(BasicBlock(""))
        self.blocks[-1].instructions.append(instruction)

    @property
    def instructions(self) -> list[Instruction]:
        return [i for b in self.blocks for i in b.instructions]

    @property
    def has_frame_pointer(self) -> bool:
        lines = (f"{i.name} {i.operands}" for i in self.instructions)
        return any(_FRAME.match(line) for line in lines)

    def on_stack(self, block: BasicBlock) -> list[str]:
        """The instructions of a block that read or write the stack."""
        registers = ["%rsp", "sp"] + (["%rbp", "x29"] if self.has_frame_pointer else [])
        reaches = re.compile("|".join(rf"[(\[]{re.escape(r)}\b" for r in registers))
        return [f"{i.name} {i.operands}" for i in block.instructions if reaches.search(i.operands)]


def functions_of(text: str) -> list[AssembledFunction]:
    """All functions of an assembly file."""
    found: list[AssembledFunction] = []
    names = set(re.findall(r"\.type\s+([\w.$]+),\s*[@%]function", text))
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label and label[1] in names:
            found.append(AssembledFunction(label[1], [BasicBlock(label[1])]))
        elif label and found:
            found[-1].blocks.append(BasicBlock(label[1]))
        elif found and line.startswith("\t") and not line.startswith("\t."):
            name, _, operands = line.strip().partition("\t")
            code = re.split(r"\s+(?:# |//)", operands)[0]
            found[-1].add(Instruction(name, code.strip()))
    return found


def hottest_loop(text: str) -> tuple[AssembledFunction, BasicBlock]:
    """The innermost loop with the most multiply-adds, and the function it is in."""
    loops = [(f, b) for f in functions_of(text) for b in f.blocks if b.is_loop]
    return max(loops, key=lambda found: len(found[1].fmas))
