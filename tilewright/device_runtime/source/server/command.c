/* `tilewright-run serve`: its options, and the key. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve.h"

static const char key_prefix[] = "tilewright-rpc-key-1:";

static bool read_key(const char *path, tw_settings *settings, tw_error *error) {
  char text[256] = "";
  FILE *file = fopen(path, "r");
  if (!file) return tw_fail(error, "%s is no key: %s", path, strerror(errno));
  bool is_read = fgets(text, sizeof text, file) != NULL;
  fclose(file);
  text[strcspn(text, "\r\n ")] = 0;
  size_t begin = sizeof key_prefix - 1;
  if (!is_read || strncmp(text, key_prefix, begin) || strlen(text) != begin + 2 * KEY_BYTES)
    return tw_fail(error, "%s is no key: make one by `tilewright rpc keygen FILE`", path);
  for (int k = 0; k < KEY_BYTES; k++) {
    char digits[3] = {text[begin + 2 * (size_t)k], text[begin + 2 * (size_t)k + 1], 0}, *end;
    settings->key[k] = (uint8_t)strtoul(digits, &end, 16);
    if (*end || digits[0] == '+' || digits[0] == '-')
      return tw_fail(error, "%s is no key: it holds other than hexadecimal digits", path);
  }
  memset(text, 0, sizeof text);
  return true;
}

static bool read_number(const char *text, double least, double most, double *value) {
  char *end;
  errno = 0;
  *value = strtod(text, &end);
  return !errno && end != text && !*end && *value >= least && *value <= most;
}

/* Where a number goes that an option gives. */
static bool set_number(tw_settings *settings, const char *option, double value) {
  tw_limits *limits = &settings->limits;
  const struct {
    const char *name;
    int64_t *whole;
    double *real;
  } table[] = {
      {"--sessions", &limits->sessions, NULL},      {"--memory", &limits->memory_bytes, NULL},
      {"--message", &limits->message_bytes, NULL},  {"--room", &limits->folder_bytes, NULL},
      {"--call-seconds", NULL, &limits->call_seconds}, {"--idle-seconds", NULL, &limits->idle_seconds},
  };
  if (!strcmp(option, "--port") && value <= 65535) return settings->port = (int32_t)value, true;
  for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
    if (strcmp(option, table[k].name)) continue;
    if (table[k].whole) *table[k].whole = (int64_t)value;
    if (table[k].real) *table[k].real = value;
    return true;
  }
  return false;
}

static bool read_options(int count, char **words, tw_settings *settings, const char **key,
                         tw_error *error) {
  for (int k = 1; k < count; k += 2) {
    const char *option = words[k], *value = k + 1 < count ? words[k + 1] : NULL;
    double number;
    if (!value) return false;
    if (!strcmp(option, "--key-file"))
      *key = value;
    else if (!strcmp(option, "--host"))
      settings->host = value;
    else if (!strcmp(option, "--name"))
      settings->name = value;
    else if (!strcmp(option, "--target"))
      settings->target = value;
    else if (!strcmp(option, "--tracker"))
      settings->tracker = value;
    else if (!strcmp(option, "--trusted")) {
      if (!tw_trust_add(&settings->trust, value, error)) return false;
    } else if (!read_number(value, 0, 1e15, &number) || !set_number(settings, option, number))
      return false;
  }
  const tw_limits *limits = &settings->limits;
  return *key && limits->sessions > 0 && limits->sessions <= 64 && limits->call_seconds > 0 &&
         limits->idle_seconds > 0 && limits->idle_seconds < 1e6;
}

int tw_serve_command(int count, char **words, const char *usage) {
  static tw_settings settings = {.host = "127.0.0.1",
                                 .limits = {1, 1 << 30, (int64_t)4 << 30, 0, 300, 600}};
  static char target[2048], name[256] = "device";
  const char *key = NULL;
  tw_error error = {{0}};
  gethostname(name, sizeof name - 1);
  tw_this_target(target, sizeof target);
  settings.name = name;
  settings.target = target;
  bool is_asked = read_options(count, words, &settings, &key, &error);
  if (!is_asked && !*error.text) return fputs(usage, stderr), 2;
  if (is_asked && read_key(key, &settings, &error) && tw_serve(&settings, &error)) return 0;
  fprintf(stderr, "tilewright-run: %s\n", error.text);
  return 1;
}
