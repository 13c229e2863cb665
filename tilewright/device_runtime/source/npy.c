/* Arrays in files of NumPy. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { MAGIC = 6, LONGEST = 1 << 16 };
static const char magic[] = "\x93NUMPY";

static const struct {
  const char *name, *descr;
} names[] = {
    {"bool", "|b1"},   {"int8", "|i1"},   {"int16", "<i2"},   {"int32", "<i4"},
    {"int64", "<i8"},  {"uint8", "|u1"},  {"uint16", "<u2"},  {"uint32", "<u4"},
    {"uint64", "<u8"}, {"float16", "<f2"}, {"float32", "<f4"}, {"float64", "<f8"},
};

/* How NumPy writes a type; those that it lacks are raw bytes to it. */
static const char *descr_of(const char *type, char *room, size_t size) {
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    if (!strcmp(names[k].name, type)) return names[k].descr;
  snprintf(room, size, "%cV%zu", tw_type_size(type) > 1 ? '<' : '|', tw_type_size(type));
  return room;
}

/* ---- reading ---------------------------------------------------------------------------------- */

/* What follows 'key': in a header, which is a dictionary of Python's. */
static const char *value_of(const char *header, const char *key) {
  const char *found = strstr(header, key);
  if (!found) return NULL;
  found += strlen(key);
  while (*found == ' ' || *found == ':') found++;
  return found;
}

static bool read_shape(const char *at, tw_array *array) {
  if (!at || *at++ != '(') return false;
  for (;;) {
    while (*at == ' ' || *at == ',') at++;
    if (*at == ')') return true;
    char *end;
    errno = 0;
    long long extent = strtoll(at, &end, 10);
    if (end == at || errno || extent < 0 || array->rank == TW_MAX_RANK) return false;
    array->shape[array->rank++] = extent;
    at = end;
  }
}

static bool is_of_type(const char *found, const char *type) {
  char room[16];
  const char *wanted = descr_of(type, room, sizeof room);
  if (!found || *found++ != '\'') return false;
  size_t size = strlen(wanted);
  /* The order of bytes does not matter for raw ones. */
  bool is_equal = !strncmp(found, wanted, size) ||
                  (wanted[1] == 'V' && *found == '|' && !strncmp(found + 1, wanted + 1, size - 1));
  return is_equal && found[size] == '\'';
}

static bool read_header(FILE *file, char *header) {
  uint8_t head[12];
  if (fread(head, 1, MAGIC + 4, file) != MAGIC + 4 || memcmp(head, magic, MAGIC)) return false;
  size_t size = (size_t)head[8] | (size_t)head[9] << 8;
  if (head[6] == 2 || head[6] == 3) {
    if (fread(head + 10, 1, 2, file) != 2) return false;
    size |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
  } else if (head[6] != 1) {
    return false;
  }
  if (size >= LONGEST || fread(header, 1, size, file) != size) return false;
  header[size] = 0;
  return strlen(header) == size;
}

static bool read_array(FILE *file, const char *type, tw_array *array, char *header,
                       tw_error *error) {
  if (!read_header(file, header)) return tw_fail(error, "it is no file of NumPy's, or damaged");
  const char *order = value_of(header, "'fortran_order'");
  if (!is_of_type(value_of(header, "'descr'"), type))
    return tw_fail(error, "it does not hold elements of the type %s", type);
  if (!order || strncmp(order, "False", 5)) return tw_fail(error, "it is not in row-major order");
  int64_t count = read_shape(value_of(header, "'shape'"), array) ? tw_array_elements(array) : -1;
  uint64_t bytes = (uint64_t)count * tw_type_size(type);
  if (count < 0 || bytes > SIZE_MAX / 2) return tw_fail(error, "its shape makes no sense");
  if (fseek(file, 0, SEEK_CUR)) return tw_fail(error, "%s", strerror(errno));
  long at = ftell(file);
  if (fseek(file, 0, SEEK_END)) return tw_fail(error, "%s", strerror(errno));
  long end = ftell(file);
  /* Before memory is taken for it. */
  if (at < 0 || end < at || (uint64_t)(end - at) != bytes)
    return tw_fail(error, "its shape asks for %" PRIu64 " bytes, and it has %ld", bytes, end - at);
  if (fseek(file, at, SEEK_SET)) return tw_fail(error, "%s", strerror(errno));
  if (posix_memalign(&array->data, 64, bytes ? (size_t)bytes : 1)) {
    array->data = NULL;
    return tw_no_memory(error);
  }
  array->type = type;
  return fread(array->data, 1, (size_t)bytes, file) == bytes || tw_fail(error, "it is cut short");
}

bool tw_npy_read(const char *path, const char *type, tw_array *array, tw_error *error) {
  memset(array, 0, sizeof *array);
  type = tw_type_name(type);
  if (!type) return tw_fail(error, "cannot read %s: its type is not known", path);
  FILE *file = fopen(path, "rb");
  char *header = malloc(LONGEST);
  tw_error reason = {{0}};
  bool is_read = file && header ? read_array(file, type, array, header, &reason)
                                : tw_fail(&reason, "%s", strerror(errno));
  if (!is_read) {
    tw_arrays_free(array, 1);
    tw_fail(error, "cannot read %s: %s", path, reason.text);
  }
  if (file) fclose(file);
  free(header);
  return is_read;
}

/* ---- writing ---------------------------------------------------------------------------------- */

static bool write_array(FILE *file, const tw_array *array) {
  char room[16], blank[64];
  tw_text text = {0};
  tw_text_print(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                descr_of(array->type, room, sizeof room));
  for (int32_t k = 0; k < array->rank; k++)
    tw_text_print(&text, k && k + 1 == array->rank ? "%" PRId64 : "%" PRId64 ", ", array->shape[k]);
  tw_text_print(&text, "), }");
  memset(blank, ' ', sizeof blank);
  tw_text_add(&text, blank, 63 - (MAGIC + 4 + text.size) % 64);
  tw_text_add(&text, "\n", 1);
  uint8_t head[] = {1, 0, (uint8_t)text.size, (uint8_t)(text.size >> 8)};
  size_t bytes = (size_t)tw_array_elements(array) * tw_type_size(array->type);
  bool is_good = !text.failed && fwrite(magic, 1, MAGIC, file) == MAGIC &&
                 fwrite(head, 1, sizeof head, file) == sizeof head &&
                 fwrite(text.data, 1, text.size, file) == text.size &&
                 fwrite(array->data, 1, bytes, file) == bytes;
  tw_text_free(&text);
  return is_good;
}

bool tw_npy_write(const char *path, const tw_array *array, tw_error *error) {
  if (!tw_type_name(array->type) || tw_array_elements(array) < 0)
    return tw_fail(error, "cannot write %s: it is no array", path);
  FILE *file = fopen(path, "wb");
  bool is_written = file && write_array(file, array);
  if (file && fclose(file)) is_written = false;
  return is_written || tw_fail(error, "cannot write %s: %s", path, strerror(errno));
}
