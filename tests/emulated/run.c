/* Runs a model, or a kernel, once. From stdin come numbers of 64 bits: the threads; how many
   inputs, outputs and dimensions there are; the bytes of each input and output; the dimensions;
   then the inputs themselves. To stdout go the outputs. A kernel's arrays are all inputs, and all
   are given back. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef _WIN32
#include <fcntl.h>
#include <io.h>
#include <malloc.h>
/* Code for MSVC asks for it, whose C library has it. */
int _fltused;
#define posix_memalign(made, alignment, size) (!(*(made) = _aligned_malloc(size, alignment)))
#endif

#define MOST 64

static int64_t sizes[2 * MOST], dims[MOST], inputs, outputs, given;
static void *tensors[2 * MOST];

static void take(void *to, int64_t size) {
  if (size > 0 && fread(to, 1, size, stdin) != (size_t)size) exit(90);
}

static int64_t number(void) {
  int64_t value = 0;
  take(&value, sizeof value);
  return value;
}

static void *memory(int64_t size) {
  void *made = NULL;
  if (posix_memalign(&made, 64, size + 64)) exit(91);
  return made;
}

static void give(int64_t first, int64_t end) {
  for (int64_t k = first; k < end; k++) fwrite(tensors[k], 1, sizes[k], stdout);
  if (fflush(stdout)) exit(92);
}

#ifdef KERNEL
int32_t entry(uint64_t *words) __asm__(KERNEL ".entry");
int64_t workspace(uint64_t *words) __asm__(KERNEL ".workspace");
void *tw_pool_create(int32_t threads, const int32_t *cpus, int32_t count);
void tw_pool_destroy(void *pool);

static int32_t run(int64_t threads) {
  uint64_t words[2 * MOST + 3] = {0};
  int64_t error[6] = {0}, used = inputs + given;
  for (int64_t k = 0; k < inputs; k++) words[k] = (uintptr_t)tensors[k];
  for (int64_t k = 0; k < given; k++) words[inputs + k] = dims[k];
  void *pool = tw_pool_create(threads, NULL, 0);
  words[used] = (uintptr_t)pool;
  words[used + 1] = (uintptr_t)memory(workspace(words));
  words[used + 2] = (uintptr_t)error;
  int32_t code = entry(words);
  tw_pool_destroy(pool);
  give(0, inputs);
  return code;
}
#else
/* Models without symbolic dimensions do not look at the last argument. */
int32_t net_run(const void *const *inputs, void **outputs, const int64_t *dims);
void net_init(int32_t threads);
void net_free(void);
const char *net_error(void);

static int32_t run(int64_t threads) {
  net_init(threads);
  int32_t code = net_run((const void *const *)tensors, tensors + inputs, dims);
  if (code) fprintf(stderr, "%s\n", net_error());
  net_free();
  give(inputs, inputs + outputs);
  return code;
}
#endif

int main(void) {
#ifdef _WIN32
  _setmode(_fileno(stdin), _O_BINARY);
  _setmode(_fileno(stdout), _O_BINARY);
#endif
  int64_t threads = number();
  inputs = number(), outputs = number(), given = number();
  if (inputs > MOST || outputs > MOST || given > MOST) return 93;
  for (int64_t k = 0; k < inputs + outputs; k++) sizes[k] = number();
  for (int64_t k = 0; k < given; k++) dims[k] = number();
  for (int64_t k = 0; k < inputs + outputs; k++) tensors[k] = memory(sizes[k]);
  for (int64_t k = 0; k < inputs; k++) take(tensors[k], sizes[k]);
  return run(threads) ? 94 : 0;
}
