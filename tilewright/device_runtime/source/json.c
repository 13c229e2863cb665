/* A strict reader of JSON, and a writer whose texts are those of Python's json.dumps. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { DEEPEST = 100 };

typedef struct {
  tw_arena *arena;
  const char *at, *end;
  int depth;
} reader;

static tw_json *read_value(reader *in);

static void skip_space(reader *in) {
  while (in->at < in->end && strchr(" \t\r\n", *in->at) && *in->at) in->at++;
}

static bool take(reader *in, const char *word) {
  size_t size = strlen(word);
  if ((size_t)(in->end - in->at) < size || memcmp(in->at, word, size)) return false;
  in->at += size;
  return true;
}

/* ---- texts ------------------------------------------------------------------------------------ */

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int32_t read_code_unit(reader *in) {
  int32_t value = 0;
  if (in->end - in->at < 4) return -1;
  for (int k = 0; k < 4; k++) {
    int digit = hex_digit(*in->at++);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

/* A character that is written as \u…; -1 for zero and for halves of pairs. */
static int32_t read_escaped(reader *in) {
  int32_t first = read_code_unit(in);
  if (first <= 0 || (first >= 0xdc00 && first < 0xe000)) return -1;
  if (first < 0xd800 || first >= 0xe000) return first;
  if (!take(in, "\\u")) return -1;
  int32_t second = read_code_unit(in);
  if (second < 0xdc00 || second >= 0xe000) return -1;
  return 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
}

static char *put_utf8(char *to, int32_t c) {
  if (c < 0x80) {
    *to++ = (char)c;
    return to;
  }
  int extra = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static const int marks[] = {0, 0xc0, 0xe0, 0xf0};
  *to++ = (char)(marks[extra] | c >> (6 * extra));
  while (extra--) *to++ = (char)(0x80 | (c >> (6 * extra) & 0x3f));
  return to;
}

/* How many bytes a character of UTF-8 has; 0 for what is none. */
static size_t utf8_size(const char *text, const char *end) {
  const unsigned char *at = (const unsigned char *)text;
  size_t size = *at < 0x80 ? 1 : *at < 0xc2 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : *at < 0xf5 ? 4 : 0;
  if (!size || (size_t)(end - text) < size) return 0;
  for (size_t k = 1; k < size; k++)
    if ((at[k] & 0xc0) != 0x80) return 0;
  if ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] >= 0xa0)) return 0;
  if ((*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] >= 0x90)) return 0;
  return size;
}

static const char *read_text(reader *in) {
  if (!take(in, "\"")) return NULL;
  const char *close = in->at;
  while (close < in->end && *close != '"') close += *close == '\\' && close + 1 < in->end ? 2 : 1;
  if (close >= in->end) return NULL;
  char *made = tw_take(in->arena, (size_t)(close - in->at) + 1, 1), *to = made;
  if (!made) return NULL;
  while (in->at < close) {
    unsigned char c = (unsigned char)*in->at;
    if (c < ' ') return NULL;
    if (c != '\\') {
      size_t size = utf8_size(in->at, close);
      if (!size) return NULL;
      memcpy(to, in->at, size);
      to += size, in->at += size;
      continue;
    }
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *found = in->at[1] ? strchr(names, in->at[1]) : NULL;
    in->at += 2;
    if (found) {
      *to++ = values[found - names];
    } else {
      int32_t code = in->at[-1] == 'u' ? read_escaped(in) : -1;
      if (code < 0) return NULL;
      to = put_utf8(to, code);
    }
  }
  in->at = close + 1;
  return made;
}

/* ---- values ----------------------------------------------------------------------------------- */

static bool is_digit(const reader *in) {
  return in->at < in->end && *in->at >= '0' && *in->at <= '9';
}

static bool skip_digits(reader *in) {
  if (!is_digit(in)) return false;
  while (is_digit(in)) in->at++;
  return true;
}

static bool read_number(reader *in, tw_json *value) {
  const char *start = in->at;
  bool is_negative = take(in, "-");
  const char *digits = in->at;
  if (!skip_digits(in) || (*digits == '0' && in->at - digits > 1)) return false;
  value->kind = TW_INTEGER;
  uint64_t number = 0;
  bool fits = true;
  for (const char *at = digits; at < in->at; at++) {
    fits = fits && number <= (INT64_MAX - 9) / 10;
    number = number * 10 + (uint64_t)(*at - '0');
  }
  if (take(in, ".")) {
    value->kind = TW_REAL;
    if (!skip_digits(in)) return false;
  }
  if (take(in, "e") || take(in, "E")) {
    value->kind = TW_REAL;
    if (!take(in, "-")) take(in, "+");
    if (!skip_digits(in)) return false;
  }
  char copy[64];
  size_t size = (size_t)(in->at - start);
  if (size >= sizeof copy) return false;
  memcpy(copy, start, size);
  copy[size] = 0;
  value->real = strtod(copy, NULL);
  if (value->kind == TW_INTEGER && !fits) return false;
  value->integer = is_negative ? -(int64_t)number : (int64_t)number;
  return true;
}

static bool read_parts(reader *in, tw_json *value, char close) {
  tw_json **last = &value->first;
  in->at++;
  skip_space(in);
  if (in->at < in->end && *in->at == close) return in->at++, true;
  for (;;) {
    const char *key = NULL;
    skip_space(in);
    if (close == '}') {
      key = read_text(in);
      skip_space(in);
      if (!key || !take(in, ":")) return false;
    }
    tw_json *part = read_value(in);
    if (!part) return false;
    part->key = key;
    *last = part, last = &part->next, value->count++;
    skip_space(in);
    if (in->at >= in->end) return false;
    char next = *in->at++;
    if (next == close) return true;
    if (next != ',') return false;
  }
}

static bool read_nested(reader *in, tw_json *value, char close) {
  if (in->depth >= DEEPEST) return false;
  in->depth++;
  bool is_good = read_parts(in, value, close);
  in->depth--;
  return is_good;
}

static tw_json *read_value(reader *in) {
  skip_space(in);
  tw_json *value = tw_take(in->arena, 1, sizeof *value);
  if (!value || in->at >= in->end) return NULL;
  bool is_good = true;
  if (*in->at == '{') {
    value->kind = TW_OBJECT;
    is_good = read_nested(in, value, '}');
  } else if (*in->at == '[') {
    value->kind = TW_LIST;
    is_good = read_nested(in, value, ']');
  } else if (*in->at == '"') {
    value->kind = TW_TEXT;
    is_good = (value->text = read_text(in)) != NULL;
  } else if (take(in, "true")) {
    value->kind = TW_BOOL;
    value->integer = 1;
  } else if (take(in, "false")) {
    value->kind = TW_BOOL;
  } else if (!take(in, "null")) {
    is_good = read_number(in, value);
  }
  return is_good ? value : NULL;
}

const tw_json *tw_json_read(tw_arena *arena, const char *text, size_t size) {
  reader in = {arena, text, text + size, 0};
  const tw_json *value = read_value(&in);
  skip_space(&in);
  return in.at == in.end ? value : NULL;
}

const tw_json *tw_json_find(const tw_json *object, const char *key) {
  if (!object || object->kind != TW_OBJECT) return NULL;
  for (const tw_json *part = object->first; part; part = part->next)
    if (!strcmp(part->key, key)) return part;
  return NULL;
}

const tw_json *tw_json_field(const tw_json *object, const char *key, tw_kind kind) {
  const tw_json *found = tw_json_find(object, key);
  return found && found->kind == kind ? found : NULL;
}

const char *tw_json_text(const tw_json *object, const char *key) {
  const tw_json *found = tw_json_field(object, key, TW_TEXT);
  return found ? found->text : NULL;
}

tw_json *tw_json_copy(tw_arena *arena, const tw_json *value) {
  tw_json *made = tw_take(arena, 1, sizeof *made);
  if (!made) return NULL;
  *made = *value;
  made->first = made->next = NULL;
  made->key = value->key ? tw_take_text(arena, value->key, strlen(value->key)) : NULL;
  made->text = value->text ? tw_take_text(arena, value->text, strlen(value->text)) : NULL;
  if ((value->key && !made->key) || (value->text && !made->text)) return NULL;
  tw_json **last = &made->first;
  for (const tw_json *part = value->first; part; part = part->next, last = &(*last)->next)
    if (!(*last = tw_json_copy(arena, part))) return NULL;
  return made;
}

/* ---- writing ---------------------------------------------------------------------------------- */

static int32_t next_character(const char **at) {
  const unsigned char *text = (const unsigned char *)*at;
  int extra = *text < 0x80 ? 0 : *text < 0xe0 ? 1 : *text < 0xf0 ? 2 : 3;
  int32_t value = extra ? *text & (0x3f >> extra) : *text;
  for (int k = 1; k <= extra; k++) value = value << 6 | (text[k] & 0x3f);
  *at += 1 + extra;
  return value;
}

void tw_json_write_text(tw_text *text, const char *value) {
  tw_text_add(text, "\"", 1);
  while (*value) {
    int32_t c = next_character(&value);
    const char *short_names = "\"\"\\\\\bb\ff\nn\rr\tt";
    const char *found = NULL;
    for (const char *at = short_names; *at && !found; at += 2)
      if (*at == c) found = at + 1;
    if (found)
      tw_text_print(text, "\\%c", *found);
    else if (c >= ' ' && c <= '~')
      tw_text_print(text, "%c", (char)c);
    else if (c < 0x10000)
      tw_text_print(text, "\\u%04x", (unsigned)c);
    else
      tw_text_print(text, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)),
                    (unsigned)(0xdc00 + ((c - 0x10000) & 0x3ff)));
  }
  tw_text_add(text, "\"", 1);
}

void tw_json_write(tw_text *text, const tw_json *value) {
  if (value->kind == TW_INTEGER) {
    tw_text_print(text, "%" PRId64, value->integer);
  } else if (value->kind == TW_TEXT) {
    tw_json_write_text(text, value->text);
  } else if (value->kind == TW_LIST) {
    tw_text_add(text, "[", 1);
    for (const tw_json *part = value->first; part; part = part->next) {
      tw_json_write(text, part);
      if (part->next) tw_text_add(text, ",", 1);
    }
    tw_text_add(text, "]", 1);
  } else {
    /* Nothing else stands in what is sealed. */
    text->failed = true;
  }
}
