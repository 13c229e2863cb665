/* Dimensions of arrays: numbers, names, and operations such as ["mul", 4, "n"]. */
#include <inttypes.h>
#include <string.h>

#include "program.h"

enum { DEEPEST = 64 };

static const char *const operations[] = {"add", "sub", "mul", "floordiv", "floormod", "min", "max"};
static const char *const symbols[] = {"+", "-", "*", "//", "%"};
enum { ADD, SUB, MUL, FLOORDIV, FLOORMOD, MIN, MAX, OPERATIONS };

static int operation_of(const tw_json *dim) {
  int k = 0;
  while (k < OPERATIONS && strcmp(operations[k], dim->first->text)) k++;
  return k;
}

static bool is_good(const tw_json *dim, int depth) {
  if (dim->kind == TW_INTEGER || dim->kind == TW_TEXT) return true;
  if (dim->kind != TW_LIST || dim->count != 3 || depth >= DEEPEST) return false;
  if (dim->first->kind != TW_TEXT || operation_of(dim) == OPERATIONS) return false;
  const tw_json *a = dim->first->next;
  return is_good(a, depth + 1) && is_good(a->next, depth + 1);
}

bool tw_dim_is_good(const tw_json *dim) { return is_good(dim, 0); }

void tw_dim_text(tw_text *text, const tw_json *dim) {
  if (dim->kind == TW_INTEGER) {
    tw_text_print(text, "%" PRId64, dim->integer);
  } else if (dim->kind == TW_TEXT) {
    tw_text_add(text, dim->text, strlen(dim->text));
  } else {
    int op = operation_of(dim);
    const tw_json *a = dim->first->next;
    tw_text_print(text, op < MIN ? "(" : op == MIN ? "min(" : "max(");
    tw_dim_text(text, a);
    tw_text_print(text, op < MIN ? " %s " : ", ", op < MIN ? symbols[op] : "");
    tw_dim_text(text, a->next);
    tw_text_print(text, ")");
  }
}

static const int64_t *find(const tw_sizes *sizes, const char *name) {
  for (size_t k = 0; k < sizes->count; k++)
    if (!strcmp(sizes->names[k], name)) return &sizes->values[k];
  return NULL;
}

bool tw_dim_learn(const tw_json *dim, int64_t extent, tw_sizes *sizes, tw_arena *arena) {
  if (dim->kind == TW_TEXT) {
    if (find(sizes, dim->text)) return true;
    if (sizes->count == sizes->room) {
      size_t room = sizes->room * 2 + 8;
      const char **names = tw_take(arena, room, sizeof *names);
      int64_t *values = tw_take(arena, room, sizeof *values);
      if (!names || !values) return false;
      if (sizes->count) {
        memcpy(names, sizes->names, sizes->count * sizeof *names);
        memcpy(values, sizes->values, sizes->count * sizeof *values);
      }
      sizes->names = names, sizes->values = values, sizes->room = room;
    }
    sizes->names[sizes->count] = dim->text;
    sizes->values[sizes->count++] = extent;
    return true;
  }
  if (dim->kind != TW_LIST) return true;
  const tw_json *a = dim->first->next, *b = a->next;
  int op = operation_of(dim);
  bool by_b = b->kind == TW_INTEGER && b->integer && b->integer != -1;
  bool by_a = a->kind == TW_INTEGER && a->integer && a->integer != -1;
  if (op == MUL && by_b && extent % b->integer == 0)
    return tw_dim_learn(a, extent / b->integer, sizes, arena);
  if (op == MUL && by_a && extent % a->integer == 0)
    return tw_dim_learn(b, extent / a->integer, sizes, arena);
  if (op == ADD && b->kind == TW_INTEGER && b->integer > INT64_MIN / 2 && extent >= b->integer)
    return tw_dim_learn(a, extent - b->integer, sizes, arena);
  return true;
}

static bool divided(int64_t a, int64_t b, bool wants_rest, int64_t *value) {
  *value = 0;
  if (!b) return true;
  if (a == INT64_MIN && b == -1) return false;
  int64_t rest = a % b;
  bool is_below = rest && (rest < 0) != (b < 0);
  *value = wants_rest ? rest + (is_below ? b : 0) : a / b - is_below;
  return true;
}

bool tw_dim_value(const tw_json *dim, const tw_sizes *sizes, int64_t *value) {
  if (dim->kind == TW_INTEGER) return *value = dim->integer, true;
  if (dim->kind == TW_TEXT) {
    const int64_t *found = find(sizes, dim->text);
    return found ? (*value = *found, true) : false;
  }
  int64_t a, b;
  const tw_json *first = dim->first->next;
  if (!tw_dim_value(first, sizes, &a) || !tw_dim_value(first->next, sizes, &b)) return false;
  switch (operation_of(dim)) {
    case ADD: return !__builtin_add_overflow(a, b, value);
    case SUB: return !__builtin_sub_overflow(a, b, value);
    case MUL: return !__builtin_mul_overflow(a, b, value);
    case FLOORDIV: return divided(a, b, false, value);
    case FLOORMOD: return divided(a, b, true, value);
    case MIN: return *value = a < b ? a : b, true;
    default: return *value = a > b ? a : b, true;
  }
}

bool tw_dim_is_known(const tw_json *dim, const tw_sizes *sizes) {
  if (dim->kind == TW_INTEGER) return true;
  if (dim->kind == TW_TEXT) return find(sizes, dim->text) != NULL;
  const tw_json *a = dim->first->next;
  return tw_dim_is_known(a, sizes) && tw_dim_is_known(a->next, sizes);
}
