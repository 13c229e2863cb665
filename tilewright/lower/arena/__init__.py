"""Assigns the buffers of a host program offsets in one piece of memory."""

from tilewright.lower.arena.plan import ArenaPlan, arena_plan, plan_arena

__all__ = ["ArenaPlan", "arena_plan", "plan_arena"]
