"""The fields of TensorFlow's messages that a reader needs."""

from __future__ import annotations

from typing import Final

from tilewright.frontends.tensorflow.wire import Schema


def _rows(text: str) -> dict[int, tuple[str, str, str]]:
    """`1 node NodeDef*`: a number, a name, a kind; `*` for many, `%` for a map with text keys."""
    rows: dict[int, tuple[str, str, str]] = {}
    for part in text.split(","):
        number, name, kind = part.split()
        count = {"*": "many", "%": "map"}.get(kind[-1], "one")
        rows[int(number)] = (name, kind.rstrip("*%"), count)
    return rows


SCHEMA: Final = Schema(
    {
        kind: _rows(text)
        for kind, text in {
            "GraphDef": "1 node NodeDef*, 2 library Library",
            "NodeDef": "1 name text, 2 op text, 3 input text*, 5 attr AttrValue%",
            "Library": "1 function FunctionDef*",
            "FunctionDef": "1 signature OpDef, 3 node_def NodeDef*, 4 ret text%, 5 attr AttrValue%",
            "OpDef": "1 name text, 2 input_arg ArgDef*, 3 output_arg ArgDef*",
            "ArgDef": "1 name text, 3 type int, 5 number_attr text, 6 type_list_attr text",
            "AttrValue": "1 list ListValue, 2 s bytes, 3 i int, 4 f float, 5 b bool, 6 type int, "
            "7 shape Shape, 8 tensor TensorProto, 9 placeholder text, 10 func NameAttrList",
            "ListValue": "2 s bytes*, 3 i int*, 4 f float*, 5 b bool*, 6 type int*, "
            "7 shape Shape*, 8 tensor TensorProto*, 9 func NameAttrList*",
            "NameAttrList": "1 name text, 2 attr AttrValue%",
            "Shape": "2 dim Dim*, 3 unknown_rank bool",
            "Dim": "1 size int, 2 name text",
            "TensorProto": "1 dtype int, 2 tensor_shape Shape, 4 tensor_content bytes, "
            "5 float_val float*, 6 double_val double*, 7 int_val int*, 8 string_val bytes*, "
            "9 scomplex_val float*, 10 int64_val int*, 11 bool_val bool*, 13 half_val int*, "
            "16 uint32_val int*, 17 uint64_val int*",
            "SavedModel": "1 schema_version int, 2 meta_graphs MetaGraph*",
            "MetaGraph": "1 meta_info_def MetaInfo, 2 graph_def GraphDef, 3 saver_def SaverDef, "
            "5 signature_def Signature%, 6 asset_file_def AssetFile*",
            "MetaInfo": "4 tags text*",
            "SaverDef": "3 restore_op_name text",
            "Signature": "1 inputs TensorInfo%, 2 outputs TensorInfo%, 3 method_name text",
            "TensorInfo": "1 name text, 2 dtype int, 3 tensor_shape Shape",
            "AssetFile": "1 tensor_info TensorInfo, 2 filename text",
            "BundleHeader": "1 num_shards int, 2 endianness int",
            "BundleEntry": "1 dtype int, 2 shape Shape, 3 shard_id int, 4 offset int, 5 size int, "
            "7 slices Slice*",
            "Slice": "1 extent Extent*",
            "Extent": "1 start int, 2 length int",
        }.items()
    }
)
