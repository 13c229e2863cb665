/* What ties the manifest to the code: a digest of all that is said about a program, which its host
   program carries. Code that runs on other data than it was made for reads and writes where it
   should not. */
#include <inttypes.h>
#include <string.h>

#include "program.h"

static const char mark[] = "tilewright seal 1: ";
enum { MARK = sizeof mark - 1, DIGITS = 64 };

static void comma(tw_text *text) { tw_text_add(text, ",", 1); }

static bool add(tw_text *text, const tw_json *value, tw_kind kind) {
  if (!value || value->kind != kind) return false;
  tw_json_write(text, value);
  comma(text);
  return true;
}

static bool add_specs(tw_text *text, const tw_json *specs) {
  tw_text_add(text, "[", 1);
  for (const tw_json *spec = specs->first; spec; spec = spec->next) {
    tw_text_print(text, "{\"name\":");
    tw_json_write(text, tw_json_find(spec, "name"));
    tw_text_print(text, ",\"dtype\":");
    tw_json_write(text, tw_json_find(spec, "dtype"));
    tw_text_print(text, ",\"shape\":");
    tw_json_write(text, tw_json_find(spec, "shape"));
    tw_text_print(text, spec->next ? "}," : "}");
  }
  tw_text_print(text, "],");
  return true;
}

static bool add_constants(tw_text *text, const tw_json *constants) {
  tw_text_add(text, "[", 1);
  for (const tw_json *item = constants->first; item; item = item->next) {
    const tw_json *dtype = tw_json_field(item, "dtype", TW_TEXT);
    const tw_json *shape = tw_json_field(item, "shape", TW_LIST);
    if (!dtype || !shape) return false;
    tw_text_add(text, "[", 1);
    tw_json_write(text, dtype);
    comma(text);
    tw_json_write(text, shape);
    tw_text_print(text, item->next ? "]," : "]");
  }
  tw_text_print(text, "],[");
  for (const tw_json *item = constants->first; item; item = item->next) {
    const tw_json *crc = tw_json_field(item, "crc", TW_INTEGER);
    if (!crc) return false;
    tw_text_print(text, "%" PRId64 "%s", crc->integer, item->next ? "," : "");
  }
  tw_text_print(text, "],");
  return true;
}

/* The digest in "objects/DIGEST.o", which was held against the code. */
static void add_digest(tw_text *text, const tw_json *name) {
  tw_text_print(text, "\"%.64s\"", name->text + strlen("objects/"));
}

static bool add_target(tw_text *text, const tw_json *target) {
  const tw_json *features = tw_json_field(target, "features", TW_LIST);
  if (!add(text, tw_json_find(target, "text"), TW_TEXT)) return false;
  if (!add(text, tw_json_find(target, "triple"), TW_TEXT) || !features) return false;
  /* They are written sorted, and are sealed so. */
  for (const tw_json *f = features->first; f; f = f->next)
    if (f->kind != TW_TEXT || (f->next && f->next->kind == TW_TEXT && strcmp(f->text, f->next->text) >= 0))
      return false;
  tw_json_write(text, features);
  return true;
}

static bool add_all(tw_text *text, const tw_json *build, const tw_json *model) {
  static const char *const lists[] = {"dims", "direct", "records", "messages", "origins", "calls"};
  tw_text_add(text, "[", 1);
  if (!add(text, tw_json_find(model, "name"), TW_TEXT)) return false;
  add_specs(text, tw_json_find(model, "inputs"));
  add_specs(text, tw_json_find(model, "outputs"));
  for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
    if (!add(text, tw_json_find(model, lists[k]), TW_LIST)) return false;
  if (!add(text, tw_json_find(model, "precision"), TW_TEXT) ||
      !add(text, tw_json_find(model, "denormals"), TW_TEXT))
    return false;
  const tw_json *constants = tw_json_field(model, "constants", TW_LIST);
  if (!constants || !add_constants(text, constants)) return false;
  tw_text_add(text, "[", 1);
  add_digest(text, tw_json_find(build, "pool"));
  const tw_json *host = tw_json_find(model, "objects")->first;
  for (const tw_json *kernel = host->next; kernel; kernel = kernel->next) {
    comma(text);
    add_digest(text, kernel);
  }
  tw_text_print(text, "],[");
  if (!add_target(text, tw_json_find(build, "target"))) return false;
  tw_text_print(text, "]]");
  return !text->failed;
}

bool tw_seal_holds(const tw_json *build, const tw_json *model, const tw_member *host,
                   tw_error *error) {
  const uint8_t *found = host->size ? memmem(host->data, host->size, mark, MARK) : NULL;
  if (!found || host->size - (size_t)(found - host->data) < MARK + DIGITS)
    return tw_fail(error, "its code carries no seal: save the model again");
  tw_text text = {0};
  char digits[DIGITS + 1] = "";
  if (add_all(&text, build, model)) tw_sha256_hex(text.data, text.size, digits);
  tw_text_free(&text);
  return !memcmp(found + MARK, digits, DIGITS) ||
         tw_fail(error, "its manifest is wrong: it says what does not hold for its code");
}
