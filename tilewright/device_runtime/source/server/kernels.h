/* A kernel that a client has sent, and calls of it. */
#ifndef TILEWRIGHT_KERNELS_H
#define TILEWRIGHT_KERNELS_H

#include "../program.h"
#include "fields.h"

/* All of it lies in the memory of the model, which holds the code. */
struct tw_kernel {
  tw_model *model;
  /* `[name, type]` for numbers, `[name, type, shape, strides, alignment, written]` for arrays. */
  const tw_json *params, *dims;
};

enum { NAME, TYPE, SHAPE, STRIDES, ALIGNMENT, WRITTEN, PARTS };

static inline const tw_json *part(const tw_json *param, int number) {
  const tw_json *found = param->first;
  while (number--) found = found->next;
  return found;
}

static inline bool is_array(const tw_json *param) { return param->count == PARTS; }

static inline bool is_written(const tw_json *param) {
  return is_array(param) && part(param, WRITTEN)->integer;
}

/* The number of the array that an argument is; -1 where it is none. */
int64_t tw_array_number(const tw_calls *calls, const tw_json *argument);
/* A call with the arguments of a request, each of which is checked. */
bool tw_kernel_bind(tw_call *call, const tw_kernel *kernel, const tw_calls *calls,
                    const tw_json *arguments, tw_error *error);

#endif
