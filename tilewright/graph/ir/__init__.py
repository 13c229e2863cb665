"""The graph IR: functions of bindings in A-normal form.

    Value                                   what a binding or a parameter defines; or a constant
    Binding(outputs, expr)                  outputs = expr
    Graph(params, body, results)            a block of bindings; captures outer values freely
    Function(name, params, body, results)   a graph that is called by name
    Module(functions, data_types)           `main` is where it starts

Expressions (`Node`)
    Call(op, args, attrs)                   an operator; an optional operand may be None
    Read(value, dims)                       binds fresh symbolic dimensions to the elements of an
                                            integer tensor; it has no outputs
    MakeTuple(items)   Project(value, index)
    If(condition, then, otherwise)          condition: bool[]; both graphs take no parameters
    Loop(trip_count, condition, initial, body)
                                            body: (iteration i64[], *carried) ->
                                                  (go on? bool[], *carried, *scanned)
                                            outputs: (*carried, *each scanned, stacked in front)
                                            stops at trip_count (None: never), or
                                            when `go on?` is false
    Closure(graph)                          a function as a value
    CallFunction(callee, args)              callee: the name of a function of the module, or a value
    Construct(data_type, constructor, args)
    Match(value, arms)                      one graph per constructor, its fields are the parameters
    Fused(graph)                            calls that become one kernel; it has no parameters

Values are defined once, before they are used; they keep their identity and their names are hints.
Symbolic dimensions are `ir.Var`s: a parameter's or an output's type that shows one bare for the
first time defines it. Nothing has side effects but operators that say so (`OpDef.pure`).
"""

# pyright: reportUnusedImport=false
from tilewright.graph.ir.attributes import Array
from tilewright.graph.ir.blocks import Binding, DataDef, Function, Graph, Module, all_graphs
from tilewright.graph.ir.nodes import (
    Call,
    CallFunction,
    Closure,
    Construct,
    Fused,
    If,
    Loop,
    MakeTuple,
    Match,
    Node,
    Project,
    Read,
)
from tilewright.graph.ir.values import KNOWN_LIMIT, Value
