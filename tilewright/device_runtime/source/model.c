/* Models: opened, asked what they take, and closed. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { MOST_THREADS = 4096 };

/* ---- threads ---------------------------------------------------------------------------------- */

static int32_t processor_count(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (!sched_getaffinity(0, sizeof set, &set) && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 && count < MOST_THREADS ? (int32_t)count : 1;
}

static void end_threads(tw_model *model) {
  if (!model->pool) return;
  void (*destroy)(void *) = (void (*)(void *))tw_image_address(&model->image, "tw_pool_destroy");
  destroy(model->pool);
  model->pool = NULL;
}

bool tw_model_set_threads(tw_model *model, int32_t threads, tw_error *error) {
  if (threads < 0 || threads > MOST_THREADS)
    return tw_fail(error, "there cannot be %d threads", (int)threads);
  if (!model->program.has_pool) return true;
  const tw_image *image = &model->image;
  void *(*create)(int32_t, const int32_t *, int32_t) =
      (void *(*)(int32_t, const int32_t *, int32_t))tw_image_address(image, "tw_pool_create");
  void (*set_spin)(void *, int64_t) =
      (void (*)(void *, int64_t))tw_image_address(image, "tw_pool_set_spin");
  if (!create || !set_spin || !tw_image_address(image, "tw_pool_destroy"))
    return tw_fail(error, "its thread pool lacks a function");
  int32_t processors = processor_count();
  void *pool = create(threads ? threads : processors, NULL, 0);
  if (!pool) return tw_no_memory(error);
  /* Who spins on a processor keeps it from the very thread it waits for. */
  if (threads > processors) set_spin(pool, 0);
  end_threads(model);
  model->pool = pool;
  model->threads = threads;
  return true;
}

/* ---- opening ---------------------------------------------------------------------------------- */

static uintptr_t function_of(const tw_model *model, const char *part) {
  char name[512];
  int size = snprintf(name, sizeof name, "%s.%s", model->program.name, part);
  return size > 0 && (size_t)size < sizeof name ? tw_image_address(&model->image, name) : 0;
}

bool tw_model_load_code(tw_model *model, tw_error *error) {
  const tw_program *program = &model->program;
  if (program->uses_amx && !tw_request_amx())
    return tw_fail(error, "it may use AMX, which the system does not let this process use");
  if (!tw_image_load(&model->image, &model->arena, program->objects, program->object_count, error))
    return false;
  model->entry = (int32_t(*)(const uint64_t *))function_of(model, "entry");
  model->workspace_size = (int64_t(*)(const uint64_t *))function_of(model, "workspace");
  if (!model->entry || !model->workspace_size)
    return tw_fail(error, "its code does not define %s.entry", program->name);
  model->table = tw_take(&model->arena, (size_t)program->constant_count, sizeof *model->table);
  if (!model->table) return tw_no_memory(error);
  for (int32_t k = 0; k < program->constant_count; k++)
    model->table[k] = (uintptr_t)program->constants[k].data;
  return true;
}

bool tw_model_open_file(int file, int32_t threads, const tw_trust *trust, tw_model **model,
                        tw_error *error) {
  tw_model *made = calloc(1, sizeof *made);
  if (!made) return tw_no_memory(error);
  if (tw_container_open(&made->container, &made->arena, file, error) &&
      (!trust || tw_trust_covers(trust, &made->container, &made->arena, error)) &&
      tw_program_read(&made->program, &made->container, &made->arena, error) &&
      tw_model_load_code(made, error) && tw_model_set_threads(made, threads, error)) {
    *model = made;
    return true;
  }
  tw_model_close(made);
  return false;
}

static bool open_path(const char *path, int32_t threads, const tw_trust *trust, tw_model **model,
                      tw_error *error) {
  *model = NULL;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return tw_fail(error, "cannot load %s: %s", path, strerror(errno));
  tw_error reason;
  bool is_open = tw_model_open_file(file, threads, trust, model, &reason);
  close(file);
  return is_open || tw_fail(error, "cannot load %s: %s", path, reason.text);
}

bool tw_model_open(const char *path, int32_t threads, tw_model **model, tw_error *error) {
  return open_path(path, threads, NULL, model, error);
}

bool tw_model_open_trusted(const char *path, const char *const *keys, int32_t key_count,
                           int32_t threads, tw_model **model, tw_error *error) {
  tw_trust trust = {.count = 0};
  *model = NULL;
  for (int32_t k = 0; k < key_count; k++)
    if (!tw_trust_add(&trust, keys[k], error)) return false;
  return open_path(path, threads, &trust, model, error);
}

void tw_model_close(tw_model *model) {
  if (!model) return;
  tw_model_close(model->recorder);
  end_threads(model);
  tw_image_unload(&model->image);
  tw_container_close(&model->container);
  tw_give_back(&model->arena);
  free(model);
}

/* ---- what it is ------------------------------------------------------------------------------- */

int32_t tw_model_input_count(const tw_model *model) { return model->program.input_count; }

int32_t tw_model_output_count(const tw_model *model) { return model->program.output_count; }

const tw_tensor *tw_model_input(const tw_model *model, int32_t number) {
  bool is_there = number >= 0 && number < model->program.input_count;
  return is_there ? &model->program.inputs[number] : NULL;
}

const tw_tensor *tw_model_output(const tw_model *model, int32_t number) {
  bool is_there = number >= 0 && number < model->program.output_count;
  return is_there ? &model->program.outputs[number] : NULL;
}

const char *tw_model_target(const tw_model *model) { return model->program.target; }
