/* Runs models that Tilewright compiled, without Python: opens artifacts (`.twm` files), runs and
   times them. Link with libtilewright.a, or compile the sources beside this file.

   Functions return true when all went well; otherwise the error holds one line that says why.
   A model runs one call at a time; different models may run in different threads. */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_MAX_RANK 32

typedef struct tw_model tw_model;

typedef struct tw_error {
  char text[1024];
} tw_error;

/* An array in row-major order without gaps. `type` is a name such as "float32" or "int64". */
typedef struct tw_array {
  const char *type;
  int32_t rank;
  int64_t shape[TW_MAX_RANK];
  void *data;
} tw_array;

/* What a model takes or gives. A dimension is -1 where it depends on the inputs. `text` is all of
   it for people: "x: float32[n, 24]". */
typedef struct tw_tensor {
  const char *name;
  const char *type;
  const char *text;
  int32_t rank;
  int64_t shape[TW_MAX_RANK];
} tw_tensor;

/* Seconds of one call: the median of some samples, the least of them, and how many calls a sample
   has. */
typedef struct tw_timing {
  double median;
  double least;
  int32_t samples;
  int64_t calls;
} tw_timing;

/* Open an artifact; every part of it is checked before it is used. Of several builds in it the best
   one that this machine can run is taken. `threads` is how many threads run it; 0: one for each
   processor. The file must not change while the model is open: its parameters stay mapped. */
bool tw_model_open(const char *path, int32_t threads, tw_model **model, tw_error *error);
/* The same for an artifact that one of these public keys must have signed, by Ed25519; others are
   refused before anything in them is used. Keys are paths of files: PEM, or 32 bytes. */
bool tw_model_open_trusted(const char *path, const char *const *keys, int32_t key_count,
                           int32_t threads, tw_model **model, tw_error *error);
void tw_model_close(tw_model *model);

int32_t tw_model_input_count(const tw_model *model);
int32_t tw_model_output_count(const tw_model *model);
/* Valid while the model is open. */
const tw_tensor *tw_model_input(const tw_model *model, int32_t number);
const tw_tensor *tw_model_output(const tw_model *model, int32_t number);
/* The target that the code was made for, as Tilewright writes it. */
const char *tw_model_target(const tw_model *model);

/* Use so many threads from now on; 0: one for each processor. */
bool tw_model_set_threads(tw_model *model, int32_t threads, tw_error *error);

/* Run the model on as many inputs as it takes, in order. Memory for the outputs is taken, and
   belongs to the caller: give it back by tw_arrays_free. */
bool tw_model_run(tw_model *model, const tw_array *inputs, tw_array *outputs, tw_error *error);
void tw_arrays_free(tw_array *arrays, int32_t count);

/* Time the model: `repeat` samples of at least `min_seconds` each, after `warmup` calls. */
bool tw_model_time(tw_model *model, const tw_array *inputs, int32_t repeat, double min_seconds,
                   int32_t warmup, tw_timing *timing, tw_error *error);

/* Bytes of one element; 0 for types that are not known. */
size_t tw_type_size(const char *type);
/* Elements of an array; -1 where the shape makes no sense. */
int64_t tw_array_elements(const tw_array *array);

/* Files of NumPy. An array that is read belongs to the caller: give it back by tw_arrays_free.
   `type` is what the file is expected to hold; NumPy has no names for types such as bfloat16. */
bool tw_npy_read(const char *path, const char *type, tw_array *array, tw_error *error);
bool tw_npy_write(const char *path, const tw_array *array, tw_error *error);

#ifdef __cplusplus
}
#endif
#endif
