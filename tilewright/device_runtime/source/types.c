/* Element types, and shapes of arrays. */
#include <string.h>

#include "internal.h"

static const struct {
  const char *name;
  size_t size;
} types[] = {
    {"bool", 1},          {"int8", 1},           {"int16", 2},         {"int32", 4},
    {"int64", 8},         {"uint8", 1},          {"uint16", 2},        {"uint32", 4},
    {"uint64", 8},        {"float16", 2},        {"bfloat16", 2},      {"float32", 4},
    {"float64", 8},       {"float8_e4m3fn", 1},  {"float8_e4m3fnuz", 1}, {"float8_e5m2", 1},
    {"float8_e5m2fnuz", 1}, {"float8_e8m0fnu", 1}, {"float4_e2m1fn", 1}, {"int4", 1},
    {"int2", 1},          {"uint4", 1},          {"uint2", 1},
};

static size_t row_of(const char *name) {
  size_t count = sizeof types / sizeof *types, k = 0;
  while (k < count && strcmp(types[k].name, name)) k++;
  return k;
}

size_t tw_type_size(const char *type) {
  size_t row = type ? row_of(type) : sizeof types;
  return row < sizeof types / sizeof *types ? types[row].size : 0;
}

const char *tw_type_name(const char *name) {
  size_t row = name ? row_of(name) : sizeof types;
  return row < sizeof types / sizeof *types ? types[row].name : NULL;
}

int64_t tw_array_elements(const tw_array *array) {
  int64_t count = 1, limit = INT64_MAX / 64;
  if (array->rank < 0 || array->rank > TW_MAX_RANK) return -1;
  bool is_empty = false;
  for (int32_t k = 0; k < array->rank; k++) {
    int64_t extent = array->shape[k];
    if (extent < 0) return -1;
    is_empty = is_empty || !extent;
    if (extent && count > limit / extent) return -1;
    count *= extent ? extent : 1;
  }
  return is_empty ? 0 : count;
}
