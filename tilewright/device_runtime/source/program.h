/* What reads programs out of manifests. */
#ifndef TILEWRIGHT_PROGRAM_H
#define TILEWRIGHT_PROGRAM_H

#include "internal.h"

/* Of anything that a manifest lists. */
enum { TW_MOST = 1 << 20 };

static inline bool tw_wrong(tw_error *error, const char *what) {
  return tw_fail(error, "its manifest is wrong: %s makes no sense", what);
}

/* Inputs, outputs, dimensions, records and messages. */
bool tw_signature_read(tw_program *program, tw_arena *arena, const tw_json *model, tw_error *error);

/* ---- dimensions: numbers, names, and operations over them -------------------------------------- */

/* The sizes of named dimensions. */
typedef struct tw_sizes {
  const char **names;
  int64_t *values;
  size_t count, room;
} tw_sizes;

bool tw_dim_is_good(const tw_json *dim);
void tw_dim_text(tw_text *text, const tw_json *dim);
/* Take the size of a name from the first extent that gives it. */
bool tw_dim_learn(const tw_json *dim, int64_t extent, tw_sizes *sizes, tw_arena *arena);
/* False where a name in it has no size, or the result does not fit. */
bool tw_dim_value(const tw_json *dim, const tw_sizes *sizes, int64_t *value);
/* Whether all names in it have sizes. */
bool tw_dim_is_known(const tw_json *dim, const tw_sizes *sizes);

#endif
