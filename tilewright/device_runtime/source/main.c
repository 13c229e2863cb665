/* `tilewright-run`: runs and times a model out of an artifact, or serves this machine. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "internal.h"
#ifdef TILEWRIGHT_SERVE
#include "server/serve.h"
#endif

static const char usage[] =
    "usage: tilewright-run MODEL.twm [--input NAME=FILE.npy]... [--output-dir DIR]\n"
    "                      [--time] [--repeat N] [--threads N] [--trusted KEY.pem]...\n"
#ifdef TILEWRIGHT_SERVE
    "       tilewright-run serve --key-file FILE [--host ADDRESS] [--port N] [--name NAME]\n"
    "                      [--target TEXT] [--sessions N] [--memory BYTES] [--message BYTES]\n"
    "                      [--room BYTES] [--call-seconds N] [--idle-seconds N]\n"
    "                      [--tracker ADDRESS:PORT] [--trusted KEY.pem]...\n"
#endif
    "\n"
    "Runs a model on arrays in files of NumPy, and writes its outputs to DIR/NAME.npy. Without\n"
    "inputs it tells what the model takes and gives. --time tells how long a run takes. With\n"
    "--trusted, only artifacts that one of these public keys signed are used.\n";

enum { MOST_INPUTS = 256, DONE = 0, FAILED = 1, MISUSED = 2 };

typedef struct {
  const char *model, *folder;
  const char *inputs[MOST_INPUTS];
  int input_count;
  const char *keys[TW_MOST_KEYS];
  int32_t key_count;
  int32_t repeat, threads;
  bool wants_time;
} options;

static int misused(const char *what, const char *which) {
  fprintf(stderr, "tilewright-run: %s %s\n%s", what, which, usage);
  return MISUSED;
}

/* ---- what is asked for ------------------------------------------------------------------------ */

static bool read_count(const char *text, int32_t least, int32_t *value) {
  char *end;
  errno = 0;
  long found = strtol(text, &end, 10);
  if (errno || end == text || *end || found < least || found > 1 << 20) return false;
  *value = (int32_t)found;
  return true;
}

static int read_options(int count, char **words, options *asked) {
  for (int k = 1; k < count; k++) {
    const char *word = words[k], *value = k + 1 < count ? words[k + 1] : NULL;
    if (!strcmp(word, "--time")) {
      asked->wants_time = true;
    } else if (word[0] != '-') {
      if (asked->model) return misused("there is more than one model:", word);
      asked->model = word;
    } else if (!value) {
      return misused("nothing follows, or it is not known:", word);
    } else if (k++, !strcmp(word, "--input")) {
      if (asked->input_count == MOST_INPUTS) return misused("there are too many of", word);
      asked->inputs[asked->input_count++] = value;
    } else if (!strcmp(word, "--trusted")) {
      if (asked->key_count == TW_MOST_KEYS) return misused("there are too many of", word);
      asked->keys[asked->key_count++] = value;
    } else if (!strcmp(word, "--output-dir")) {
      asked->folder = value;
    } else if (!strcmp(word, "--repeat")) {
      if (!read_count(value, 1, &asked->repeat)) return misused("this is no number:", value);
    } else if (!strcmp(word, "--threads")) {
      if (!read_count(value, 0, &asked->threads)) return misused("this is no number:", value);
    } else {
      return misused("this is not known:", word);
    }
  }
  return asked->model ? DONE : misused("which model?", "");
}

/* ---- arrays ----------------------------------------------------------------------------------- */

/* The file of an input, which is given as NAME=FILE. */
static const char *file_of(const options *asked, const char *name) {
  size_t size = strlen(name);
  for (int k = 0; k < asked->input_count; k++)
    if (!strncmp(asked->inputs[k], name, size) && asked->inputs[k][size] == '=')
      return asked->inputs[k] + size + 1;
  return NULL;
}

static bool check_names(const options *asked, const tw_model *model, tw_error *error) {
  for (int k = 0; k < asked->input_count; k++) {
    const char *given = asked->inputs[k], *end = strrchr(given, '=');
    bool is_known = false;
    for (int32_t n = 0; end && n < tw_model_input_count(model); n++) {
      const char *name = tw_model_input(model, n)->name;
      is_known = is_known || (!strncmp(given, name, strlen(name)) && given[strlen(name)] == '=');
    }
    if (!is_known) return tw_fail(error, "the model has no input for --input %s", given);
  }
  return true;
}

static bool read_inputs(const options *asked, const tw_model *model, tw_array *inputs,
                        tw_error *error) {
  if (!check_names(asked, model, error)) return false;
  for (int32_t k = 0; k < tw_model_input_count(model); k++) {
    const tw_tensor *wanted = tw_model_input(model, k);
    const char *file = file_of(asked, wanted->name);
    if (!file) return tw_fail(error, "input %s is missing: --input %s=FILE.npy", wanted->text, wanted->name);
    if (!tw_npy_read(file, wanted->type, &inputs[k], error)) return false;
  }
  return true;
}

/* Names come out of files: what is no letter, digit, dot or line in them is left out of paths. */
static bool write_outputs(const options *asked, const tw_model *model, const tw_array *outputs,
                          tw_error *error) {
  if (mkdir(asked->folder, 0777) && errno != EEXIST)
    return tw_fail(error, "cannot make %s: %s", asked->folder, strerror(errno));
  for (int32_t k = 0; k < tw_model_output_count(model); k++) {
    char path[4096], name[256];
    snprintf(name, sizeof name, "%s", tw_model_output(model, k)->name);
    for (char *at = name; *at; at++)
      if (!isalnum((unsigned char)*at) && !strchr("._-", *at)) *at = '_';
    if (*name == '.') *name = '_';
    int size = snprintf(path, sizeof path, "%s/%s.npy", asked->folder, name);
    if (size < 0 || (size_t)size >= sizeof path)
      return tw_fail(error, "the name of %s is too long", asked->folder);
    if (!tw_npy_write(path, &outputs[k], error)) return false;
    printf("%s\n", path);
  }
  return true;
}

/* ---- running ---------------------------------------------------------------------------------- */

static void describe(const tw_model *model) {
  printf("target %s\n", tw_model_target(model));
  for (int32_t k = 0; k < tw_model_input_count(model); k++)
    printf("input  %s\n", tw_model_input(model, k)->text);
  for (int32_t k = 0; k < tw_model_output_count(model); k++)
    printf("output %s\n", tw_model_output(model, k)->text);
}

static bool time_it(const options *asked, tw_model *model, const tw_array *inputs,
                    tw_error *error) {
  tw_timing timing;
  if (!tw_model_time(model, inputs, asked->repeat, 0.05, 2, &timing, error)) return false;
  printf("median %.3f us, least %.3f us, %" PRId32 " x %" PRId64 " calls\n", timing.median * 1e6,
         timing.least * 1e6, timing.samples, timing.calls);
  return true;
}

static bool use(const options *asked, tw_model *model, tw_error *error) {
  int32_t takes = tw_model_input_count(model), gives = tw_model_output_count(model);
  if (!asked->input_count && takes) return describe(model), true;
  tw_array *inputs = calloc((size_t)takes + 1, sizeof *inputs);
  tw_array *outputs = calloc((size_t)gives + 1, sizeof *outputs);
  bool is_done = inputs && outputs ? read_inputs(asked, model, inputs, error)
                                   : tw_no_memory(error);
  if (is_done && (asked->folder || !asked->wants_time)) {
    is_done = tw_model_run(model, inputs, outputs, error);
    if (is_done && asked->folder) is_done = write_outputs(asked, model, outputs, error);
  }
  if (is_done && asked->wants_time) is_done = time_it(asked, model, inputs, error);
  if (inputs) tw_arrays_free(inputs, takes);
  if (outputs) tw_arrays_free(outputs, gives);
  free(inputs);
  free(outputs);
  return is_done;
}

int main(int count, char **words) {
  if (count < 2 || !strcmp(words[1], "--help")) {
    fputs(usage, count < 2 ? stderr : stdout);
    return count < 2 ? MISUSED : DONE;
  }
#ifdef TILEWRIGHT_SERVE
  if (!strcmp(words[1], "serve")) return tw_serve_command(count - 1, words + 1, usage);
#endif
  options asked = {.repeat = 20};
  int code = read_options(count, words, &asked);
  if (code) return code;
  tw_model *model;
  tw_error error = {{0}};
  bool is_open = asked.key_count ? tw_model_open_trusted(asked.model, asked.keys, asked.key_count,
                                                         asked.threads, &model, &error)
                                 : tw_model_open(asked.model, asked.threads, &model, &error);
  bool is_done = is_open && use(&asked, model, &error);
  tw_model_close(model);
  if (!is_done) fprintf(stderr, "tilewright-run: %s\n", error.text);
  return is_done ? DONE : FAILED;
}
