/* What the parts of the runtime share. */
#ifndef TILEWRIGHT_INTERNAL_H
#define TILEWRIGHT_INTERNAL_H

#include "tilewright.h"

/* Memory that is given back all at once. */
typedef struct tw_block tw_block;
typedef struct tw_arena {
  tw_block *blocks;
} tw_arena;

/* Zeroed memory, aligned for everything; NULL when there is none. */
void *tw_take(tw_arena *arena, size_t count, size_t size);
char *tw_take_text(tw_arena *arena, const char *text, size_t size);
void tw_give_back(tw_arena *arena);

/* Write an error's text; always false, so that callers can return it. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
bool tw_fail(tw_error *error, const char *format, ...);
bool tw_no_memory(tw_error *error);

/* A text that grows. */
typedef struct tw_text {
  char *data;
  size_t size, room;
  bool failed;
} tw_text;
void tw_text_add(tw_text *text, const char *data, size_t size);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void tw_text_print(tw_text *text, const char *format, ...);
void tw_text_free(tw_text *text);

/* ---- checksums ------------------------------------------------------------------------------ */

uint32_t tw_crc32(const void *data, size_t size);
/* 64 hexadecimal digits and a zero. */
void tw_sha256_hex(const void *data, size_t size, char digits[65]);

/* ---- JSON ----------------------------------------------------------------------------------- */

typedef enum { TW_NULL, TW_BOOL, TW_INTEGER, TW_REAL, TW_TEXT, TW_LIST, TW_OBJECT } tw_kind;
/* A value; the parts of a list or object are linked. Texts hold no zero byte. */
typedef struct tw_json {
  tw_kind kind;
  const char *key;
  const char *text;
  int64_t integer;
  double real;
  size_t count;
  struct tw_json *first, *next;
} tw_json;

/* NULL for what is not JSON, or nested too deep. */
const tw_json *tw_json_read(tw_arena *arena, const char *text, size_t size);
/* A field of an object; NULL where there is none, or where it is of another kind. */
const tw_json *tw_json_find(const tw_json *object, const char *key);
const tw_json *tw_json_field(const tw_json *object, const char *key, tw_kind kind);
const char *tw_json_text(const tw_json *object, const char *key);
/* The same in other memory; NULL where there is none. */
tw_json *tw_json_copy(tw_arena *arena, const tw_json *value);
/* Written as Python's json.dumps does without spaces. */
void tw_json_write(tw_text *text, const tw_json *value);
void tw_json_write_text(tw_text *text, const char *value);

/* ---- containers ----------------------------------------------------------------------------- */

typedef struct tw_member {
  const char *name;
  const uint8_t *data;
  size_t size;
} tw_member;
typedef struct tw_container {
  const uint8_t *map;
  size_t size;
  tw_member *members;
  size_t count;
} tw_container;

/* Map a file and check all of it but params.bin, whose parts have checksums of their own. */
bool tw_container_open(tw_container *container, tw_arena *arena, int file, tw_error *error);
void tw_container_close(tw_container *container);
const tw_member *tw_container_find(const tw_container *container, const char *name);

/* ---- signatures ----------------------------------------------------------------------------- */

#define TW_SIGNATURE "signature"
enum { TW_KEY_BYTES = 32, TW_MOST_KEYS = 16 };

/* The public keys of those whose artifacts are used. */
typedef struct tw_trust {
  uint8_t keys[TW_MOST_KEYS][TW_KEY_BYTES];
  int32_t count;
} tw_trust;

/* Trust whoever has the private key to a public one: a file of PEM, or of 32 bytes. */
bool tw_trust_add(tw_trust *trust, const char *path, tw_error *error);
/* Whether one of the keys signed a container as it is. */
bool tw_trust_covers(const tw_trust *trust, const tw_container *container, tw_arena *arena,
                     tw_error *error);

/* ---- programs ------------------------------------------------------------------------------- */

typedef struct tw_constant {
  const uint8_t *data;
  size_t size;
} tw_constant;

/* What a manifest says of one model, checked. */
typedef struct tw_program {
  const char *name, *target;
  tw_tensor *inputs, *outputs;
  int32_t input_count, output_count;
  /* The shapes: lists of numbers, names, and operations. */
  const tw_json **input_shapes, **output_shapes;
  const char **dims;
  int32_t dim_count;
  /* For each output, where in the record it is handed over; -1 for those that callers provide
     memory for, whose numbers are in `direct`. */
  int32_t *direct, direct_count;
  int64_t *records;
  int64_t record_words;
  const char **messages, **origins;
  int32_t message_count, origin_count;
  tw_constant *constants;
  int32_t constant_count;
  /* The thread pool (where there is one), the host program, then the kernels. */
  const tw_member **objects;
  int32_t object_count;
  bool has_pool, uses_amx;
} tw_program;

bool tw_program_read(tw_program *program, const tw_container *container, tw_arena *arena,
                     tw_error *error);
/* Whether the host program was made for what the manifest says of it. */
bool tw_seal_holds(const tw_json *build, const tw_json *model, const tw_member *host,
                   tw_error *error);
/* Why this machine cannot run code for a target, as a text; NULL where it can. */
const char *tw_why_not(const char *triple, const tw_json *features, char *reason, size_t room);
bool tw_request_amx(void);
/* The text of a target that fits this machine. */
void tw_this_target(char *text, size_t room);

/* ---- code ----------------------------------------------------------------------------------- */

typedef struct tw_image {
  uint8_t *base;
  size_t size;
  /* Of the names that the objects define. */
  struct tw_symbol *symbols;
  size_t symbol_room;
} tw_image;

/* Link objects into memory; `objects` are relocatable ELF files for this machine. */
bool tw_image_load(tw_image *image, tw_arena *arena, const tw_member *const *objects,
                   int32_t count, tw_error *error);
void tw_image_unload(tw_image *image);
/* Where a name lies; 0 where the code does not define it. */
uintptr_t tw_image_address(const tw_image *image, const char *name);
/* A function of the system that compiled code may call; NULL for others. */
uintptr_t tw_system_function(const char *name);

/* ---- models --------------------------------------------------------------------------------- */

struct tw_model {
  tw_arena arena;
  tw_container container;
  tw_program program;
  tw_image image;
  int32_t (*entry)(const uint64_t *words);
  int64_t (*workspace_size)(const uint64_t *words);
  uint64_t *table;
  void *pool;
  int32_t threads;
  /* The same with a host program that records, whose events have so many words. */
  struct tw_model *recorder;
  int64_t recorder_words;
};

/* Link the code of a program that was read. */
bool tw_model_load_code(tw_model *model, tw_error *error);
/* Without `trust`, signatures are not looked at. */
bool tw_model_open_file(int file, int32_t threads, const tw_trust *trust, tw_model **model,
                        tw_error *error);

/* A call whose arguments are bound: it can run many times. */
typedef struct tw_call {
  tw_model *model;
  uint64_t *words;
  uint64_t *record;
  void *workspace;
  tw_array *outputs;
  int64_t failure[6];
} tw_call;

bool tw_call_bind(tw_call *call, tw_model *model, const tw_array *inputs, tw_array *outputs,
                  tw_error *error);
bool tw_call_run(tw_call *call, tw_error *error);
/* Take the outputs over that the code has made. */
bool tw_call_finish(tw_call *call, tw_error *error);
void tw_call_free(tw_call *call);
/* Memory that the code works in, whose size follows from the words. */
bool tw_call_take_workspace(tw_call *call, tw_error *error);

/* Seconds since some moment. */
double tw_now(void);
/* Seconds of so many runs, which take turns with these calls; negative where one failed. */
double tw_calls_seconds(tw_call *calls, int64_t count, int64_t runs, tw_error *error);
/* How many runs last so long; negative where one failed. */
int64_t tw_calls_runs(tw_call *calls, int64_t count, double min_seconds, tw_error *error);
/* `samples` has room for `repeat`. */
bool tw_model_samples(tw_model *model, const tw_array *inputs, int32_t repeat, double min_seconds,
                      int32_t warmup, double *samples, int64_t *calls, tw_error *error);

/* The name of a type as the runtime keeps it; NULL for those that are not known. */
const char *tw_type_name(const char *name);

#endif
