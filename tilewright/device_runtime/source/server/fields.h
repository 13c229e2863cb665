/* Fields of requests, and what comes of one that makes no sense. */
#ifndef TILEWRIGHT_FIELDS_H
#define TILEWRIGHT_FIELDS_H

#include "serve.h"

static inline tw_outcome done_if(bool is_done) { return is_done ? ANSWERED : REFUSED; }

static inline tw_outcome wrong(tw_error *error, const char *name) {
  tw_fail(error, "its field %s makes no sense", name);
  return WRONG;
}

static inline bool is_natural(const tw_json *found) {
  return found && found->kind == TW_INTEGER && found->integer >= 0 &&
         found->integer < (int64_t)1 << 32;
}

/* A whole number that is not negative; -1 where there is none. */
static inline int64_t natural(const tw_json *header, const char *name) {
  const tw_json *found = tw_json_find(header, name);
  return is_natural(found) ? found->integer : -1;
}

/* The same, 0 for null and for what is not there: so many threads. */
static inline int64_t optional(const tw_json *header, const char *name) {
  const tw_json *found = tw_json_find(header, name);
  return !found || found->kind == TW_NULL ? 0 : natural(header, name);
}

static inline double positive(const tw_json *header, const char *name) {
  const tw_json *found = tw_json_find(header, name);
  bool is_number = found && (found->kind == TW_INTEGER || found->kind == TW_REAL);
  return is_number && found->real >= 0 && found->real < 1e9 ? found->real : -1;
}

#endif
