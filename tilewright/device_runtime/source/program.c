/* From the manifest of an artifact to a program, with everything that it claims checked. */
#include <string.h>

#include "program.h"

/* ---- builds ----------------------------------------------------------------------------------- */

/* The build that asks for most among those that this machine can run. */
static const tw_json *chosen_build(const tw_json *builds, tw_error *error) {
  const tw_json *best = NULL;
  size_t most = 0;
  char reason[512] = "there is nothing in it";
  for (const tw_json *build = builds->first; build; build = build->next) {
    const tw_json *target = tw_json_field(build, "target", TW_OBJECT);
    const char *triple = tw_json_text(target, "triple");
    const tw_json *features = tw_json_field(target, "features", TW_LIST);
    if (!triple || !features || !tw_json_text(target, "text")) {
      tw_wrong(error, "a target in it");
      return NULL;
    }
    if (tw_why_not(triple, features, reason, sizeof reason)) continue;
    if (!best || features->count > most) best = build, most = features->count;
  }
  if (!best) tw_fail(error, "it holds nothing that this machine can run: %s", reason);
  return best;
}

static bool check_version(const tw_json *manifest, tw_error *error) {
  const char *format = tw_json_text(manifest, "format");
  const tw_json *version = tw_json_field(manifest, "version", TW_INTEGER);
  if (!format || strcmp(format, "tilewright") || !version)
    return tw_fail(error, "it is no artifact of Tilewright's");
  return version->integer == 1 ||
         tw_fail(error, "it has format version %lld, and this runtime reads version 1",
                 (long long)version->integer);
}

/* ---- object code ------------------------------------------------------------------------------ */

/* Object code, which must be what its name says. */
static const tw_member *object_named(const tw_container *container, const char *name,
                                     tw_error *error) {
  const tw_member *member = name ? tw_container_find(container, name) : NULL;
  char digits[65], wanted[80] = "objects/";
  if (!member) {
    tw_fail(error, "it has no %s", name ? name : "object code");
    return NULL;
  }
  tw_sha256_hex(member->data, member->size, digits);
  strcat(strcat(wanted, digits), ".o");
  if (strcmp(wanted, name)) {
    tw_fail(error, "%s in it holds other code than its name says", name);
    return NULL;
  }
  return member;
}

static bool read_objects(tw_program *program, const tw_container *container, tw_arena *arena,
                         const tw_json *build, const tw_json *model, tw_error *error) {
  const tw_json *names = tw_json_field(model, "objects", TW_LIST);
  if (!names || !names->count || names->count > TW_MOST) return tw_wrong(error, "objects");
  program->objects = tw_take(arena, names->count + 1, sizeof *program->objects);
  if (!program->objects) return tw_no_memory(error);
  for (const tw_json *name = names->first; name; name = name->next) {
    const char *text = name->kind == TW_TEXT ? name->text : NULL;
    const tw_member *object = object_named(container, text, error);
    if (!object) return false;
    program->objects[program->object_count++] = object;
  }
  const tw_member *pool = object_named(container, tw_json_text(build, "pool"), error);
  if (!pool) return false;
  /* Code for machines of 32 bits runs in one thread, and has no pool. */
  program->has_pool = pool->size > 0;
  if (program->has_pool) program->objects[program->object_count++] = pool;
  return true;
}

/* ---- parameters ------------------------------------------------------------------------------- */

static bool read_constant(tw_constant *constant, const tw_member *params, const tw_json *fields,
                          tw_error *error) {
  const tw_json *shape = tw_json_field(fields, "shape", TW_LIST);
  const tw_json *offset = tw_json_field(fields, "offset", TW_INTEGER);
  const tw_json *crc = tw_json_field(fields, "crc", TW_INTEGER);
  tw_array array = {.type = tw_json_text(fields, "dtype")};
  size_t size = tw_type_size(array.type);
  if (!shape || !offset || !crc || !size || shape->count > TW_MAX_RANK)
    return tw_wrong(error, "a parameter");
  for (const tw_json *extent = shape->first; extent; extent = extent->next) {
    if (extent->kind != TW_INTEGER) return tw_wrong(error, "the shape of a parameter");
    array.shape[array.rank++] = extent->integer;
  }
  int64_t count = tw_array_elements(&array);
  uint64_t bytes = (uint64_t)count * size, at = (uint64_t)offset->integer;
  if (count < 0 || offset->integer < 0 || at % 64 || at > params->size || bytes > params->size - at)
    return tw_fail(error, "its manifest is wrong: a parameter does not lie in params.bin");
  constant->data = params->data + at;
  constant->size = (size_t)bytes;
  return (int64_t)tw_crc32(constant->data, constant->size) == crc->integer ||
         tw_fail(error, "params.bin in it is damaged");
}

static bool read_constants(tw_program *program, const tw_container *container, tw_arena *arena,
                           const tw_json *model, tw_error *error) {
  const tw_json *list = tw_json_field(model, "constants", TW_LIST);
  const tw_member *params = tw_container_find(container, "params.bin");
  if (!list || list->count > TW_MOST) return tw_wrong(error, "constants");
  if (!params) return tw_fail(error, "it has no params.bin");
  program->constants = tw_take(arena, list->count, sizeof *program->constants);
  if (!program->constants) return tw_no_memory(error);
  for (const tw_json *fields = list->first; fields; fields = fields->next)
    if (!read_constant(&program->constants[program->constant_count++], params, fields, error))
      return false;
  return true;
}

/* ---- all of it -------------------------------------------------------------------------------- */

static bool read_model(tw_program *program, const tw_container *container, tw_arena *arena,
                       const tw_json *build, tw_error *error) {
  const tw_json *model = tw_json_field(build, "model", TW_OBJECT);
  const tw_json *target = tw_json_find(build, "target");
  const char *kind = tw_json_text(model, "kind");
  program->name = tw_json_text(model, "name");
  program->target = tw_json_text(target, "text");
  if (!kind) return tw_wrong(error, "model");
  if (strcmp(kind, "compiled"))
    return tw_fail(error, "a model of the kind \"%s\" needs Python to run it", kind);
  if (!program->name) return tw_wrong(error, "name");
  for (const tw_json *f = tw_json_find(target, "features")->first; f; f = f->next)
    program->uses_amx = program->uses_amx || (f->kind == TW_TEXT && !strcmp(f->text, "amx-tile"));
  return tw_signature_read(program, arena, model, error) &&
         read_objects(program, container, arena, build, model, error) &&
         tw_seal_holds(build, model, program->objects[0], error) &&
         read_constants(program, container, arena, model, error);
}

bool tw_program_read(tw_program *program, const tw_container *container, tw_arena *arena,
                     tw_error *error) {
  const tw_member *member = tw_container_find(container, "manifest.json");
  if (!member) return tw_fail(error, "it has no manifest.json");
  const tw_json *manifest = tw_json_read(arena, (const char *)member->data, member->size);
  if (!manifest) return tw_fail(error, "its manifest is not JSON");
  if (!check_version(manifest, error)) return false;
  const tw_json *builds = tw_json_field(manifest, "builds", TW_LIST);
  if (!builds) return tw_wrong(error, "builds");
  const tw_json *build = chosen_build(builds, error);
  return build && read_model(program, container, arena, build, error);
}
