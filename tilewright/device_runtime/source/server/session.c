/* The process of one session: encryption, messages, and the limits on both. */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "serve.h"

enum { CHUNK = 1 << 20, MOST_DIMS = TW_MAX_RANK };

typedef struct {
  const tw_settings *settings;
  tw_channel *channel;
  int socket;
  tw_calls calls;
  /* Held by whoever uses the connection while a request is worked on. */
  pthread_mutex_t lock;
  uint32_t number;
  double working_since;
  /* The session ends: whether the peer goes now no longer matters. */
  bool is_over;
} session;

/* ---- messages --------------------------------------------------------------------------------- */

static bool send_failure(session *it, uint32_t number, const char *kind, const char *what,
                         const char *reason) {
  tw_text text = {0};
  tw_text_print(&text, "{\"kind\":\"%s\",\"what\":", kind);
  tw_json_write_text(&text, what);
  tw_text_print(&text, ",\"reason\":");
  tw_json_write_text(&text, reason);
  tw_text_print(&text, ",\"remedy\":\"\",\"listing\":\"\",\"places\":{}}");
  bool is_sent = !text.failed && tw_message_send(it->channel, FAILURE, number, text.data, 0);
  tw_text_free(&text);
  return is_sent;
}

/* ---- bodies ----------------------------------------------------------------------------------- */

static bool read_spec(const tw_json *spec, tw_array *array) {
  const tw_json *type = spec->kind == TW_LIST && spec->count == 2 ? spec->first : NULL;
  if (!type || type->kind != TW_TEXT || type->next->kind != TW_LIST) return false;
  array->type = tw_type_name(type->text);
  if (!array->type || type->next->count > MOST_DIMS) return false;
  for (const tw_json *extent = type->next->first; extent; extent = extent->next) {
    if (extent->kind != TW_INTEGER) return false;
    array->shape[array->rank++] = extent->integer;
  }
  return tw_array_elements(array) >= 0;
}

/* The arrays of a request; their sizes must add up before memory is taken. */
static int receive_arrays(session *it, const tw_json *header, uint64_t body) {
  const tw_json *specs = tw_json_find(header, "arrays");
  size_t count = specs && specs->kind == TW_LIST ? specs->count : 0;
  uint64_t total = 0;
  if ((specs && specs->kind != TW_LIST) || count > MOST_ARRAYS) return ENDED_DAMAGED;
  tw_array *arrays = it->calls.arrays = calloc(count + 1, sizeof *arrays);
  if (!arrays) return ENDED_DAMAGED;
  for (const tw_json *spec = count ? specs->first : NULL; spec; spec = spec->next) {
    tw_array *array = &arrays[it->calls.array_count++];
    if (!read_spec(spec, array)) return ENDED_DAMAGED;
    uint64_t bytes = (uint64_t)tw_array_elements(array) * tw_type_size(array->type);
    if (bytes > body - total) return ENDED_DAMAGED;
    total += bytes;
  }
  if (total != body) return ENDED_DAMAGED;
  for (size_t k = 0; k < count; k++) {
    size_t bytes = (size_t)tw_array_elements(&arrays[k]) * tw_type_size(arrays[k].type);
    if (posix_memalign(&arrays[k].data, 64, bytes ? bytes : 1)) {
      arrays[k].data = NULL;
      return ENDED_DAMAGED;
    }
    if (tw_channel_read(it->channel, arrays[k].data, bytes, PATIENCE_SECONDS)) return CLOSED;
  }
  return -1;
}

/* A body as a file that has no name; `file` is -1 where it cannot be kept, and is read anyway. */
static bool receive_file(session *it, uint64_t body, int *file) {
  const char *folder = getenv("TMPDIR");
  char path[4096];
  snprintf(path, sizeof path, "%s/tilewright-XXXXXX", folder && *folder ? folder : "/tmp");
  bool has_room = body <= (uint64_t)it->settings->limits.folder_bytes;
  *file = has_room ? mkstemp(path) : -1;
  if (*file >= 0) unlink(path);
  uint8_t *chunk = malloc(CHUNK);
  bool is_read = chunk != NULL;
  while (is_read && body) {
    size_t size = body < CHUNK ? (size_t)body : CHUNK;
    is_read = !tw_channel_read(it->channel, chunk, size, PATIENCE_SECONDS);
    for (size_t done = 0; is_read && *file >= 0 && done < size;) {
      ssize_t written = write(*file, chunk + done, size - done);
      if (written > 0) done += (size_t)written;
      if (written <= 0) close(*file), *file = -1;
    }
    body -= size;
  }
  free(chunk);
  return is_read;
}

/* ---- signs of life ---------------------------------------------------------------------------- */

static void set_alarm(double seconds) {
  struct itimerval timer = {{0, 0}, {(time_t)seconds, (suseconds_t)(seconds * 1e6) % 1000000}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

/* Tells the client while a request is worked on, and notices that it has gone. */
static void *beat(void *argument) {
  session *it = argument;
  for (;;) {
    struct pollfd watched = {.fd = it->socket, .events = POLLRDHUP};
    bool has_gone = poll(&watched, 1, 500) > 0 && watched.revents;
    if (__atomic_load_n(&it->is_over, __ATOMIC_ACQUIRE)) return NULL;
    if (has_gone) _exit(CLOSED);
    pthread_mutex_lock(&it->lock);
    if (it->working_since > 0 && tw_now() - it->working_since >= 2) {
      if (!tw_message_send(it->channel, ALIVE, it->number, "{}", 0)) _exit(CLOSED);
      it->working_since = tw_now();
    }
    pthread_mutex_unlock(&it->lock);
  }
}

static void begin_work(session *it, uint32_t number, const tw_json *header) {
  const tw_json *within = tw_json_find(header, "within");
  double most = it->settings->limits.call_seconds;
  bool is_given = within && (within->kind == TW_INTEGER || within->kind == TW_REAL);
  /* What takes too long ends the process, whatever it is at. */
  set_alarm(is_given && within->real > 0 && within->real < most ? within->real : most);
  pthread_mutex_lock(&it->lock);
  it->number = number;
  it->working_since = tw_now();
  pthread_mutex_unlock(&it->lock);
}

/* ---- requests --------------------------------------------------------------------------------- */

static bool send_answer(session *it, uint32_t number) {
  uint64_t body = 0;
  tw_text *text = &it->calls.fields, header = {0};
  tw_text_add(&header, "{", 1);
  if (text->size) tw_text_add(&header, text->data, text->size);
  tw_text_print(&header, "\"arrays\":[");
  for (size_t k = 0; k < it->calls.result_count; k++) {
    const tw_array *array = &it->calls.results[k];
    tw_text_print(&header, "%s[\"%s\",[", k ? "," : "", array->type);
    for (int32_t axis = 0; axis < array->rank; axis++)
      tw_text_print(&header, "%s%" PRId64, axis ? "," : "", array->shape[axis]);
    tw_text_print(&header, "]]");
    body += (uint64_t)tw_array_elements(array) * tw_type_size(array->type);
  }
  tw_text_print(&header, "]}");
  bool is_sent = !header.failed && tw_message_send(it->channel, REPLY, number, header.data, body);
  for (size_t k = 0; is_sent && k < it->calls.result_count; k++) {
    const tw_array *array = &it->calls.results[k];
    is_sent = tw_channel_write(it->channel, array->data,
                               (size_t)tw_array_elements(array) * tw_type_size(array->type));
  }
  tw_text_free(&header);
  return is_sent;
}

/* Answer one request; the exit code where the session ends, -1 where it goes on. */
static int answer(session *it, const tw_prefix *asked, const tw_json *header, tw_error *error) {
  const char *call = tw_json_text(header, "call");
  tw_outcome outcome = REFUSED;
  if (asked->kind != REQUEST || !call) return ENDED_DAMAGED;
  if (!strcmp(call, "load")) {
    int file = -1;
    if (!receive_file(it, asked->body, &file)) return CLOSED;
    begin_work(it, asked->number, header);
    if (file < 0)
      tw_fail(error, "there is no room for the model on this device");
    else
      outcome = tw_call_load(&it->calls, header, file, (int64_t)asked->body, error);
    if (file >= 0) close(file);
  } else {
    if (asked->body > (uint64_t)it->settings->limits.message_bytes) return ENDED_DAMAGED;
    int code = receive_arrays(it, header, asked->body);
    if (code >= 0) return code;
    begin_work(it, asked->number, header);
    outcome = tw_call_answer(&it->calls, header, error);
  }
  set_alarm(0);
  pthread_mutex_lock(&it->lock);
  it->working_since = 0;
  bool is_sent = outcome == WRONG      ? true
                 : outcome == ANSWERED ? send_answer(it, asked->number)
                                       : send_failure(it, asked->number, "UserError", error->text, "");
  pthread_mutex_unlock(&it->lock);
  return !is_sent ? CLOSED : outcome == WRONG ? ENDED_DAMAGED : -1;
}

static int serve_requests(session *it) {
  const tw_limits *limits = &it->settings->limits;
  int64_t most = limits->message_bytes > limits->folder_bytes ? limits->message_bytes
                                                              : limits->folder_bytes;
  for (;;) {
    tw_arena arena = {0};
    tw_error error = {"its header or body is not what it should be"};
    tw_prefix asked;
    int code;
    const tw_json *header =
        tw_message_receive(it->channel, &arena, &asked, (uint64_t)most, limits->idle_seconds, &code);
    if (header) code = answer(it, &asked, header, &error);
    tw_call_clear(&it->calls);
    tw_give_back(&arena);
    if (code >= 0) __atomic_store_n(&it->is_over, true, __ATOMIC_RELEASE);
    if (code == ENDED_DAMAGED) {
      pthread_mutex_lock(&it->lock);
      send_failure(it, 0, "ProtocolError", "a message is damaged", error.text);
      pthread_mutex_unlock(&it->lock);
    }
    if (code >= 0) return code;
  }
}

/* ---- the beginning ---------------------------------------------------------------------------- */

static bool send_facts(session *it, uint32_t number, const char *name, const uint8_t *proof) {
  const tw_limits *limits = &it->settings->limits;
  tw_text text = {0};
  tw_text_print(&text, "{\"target\":");
  tw_json_write_text(&text, it->settings->target);
  tw_text_print(&text, ",\"name\":");
  tw_json_write_text(&text, it->settings->name);
  tw_text_print(&text, ",\"limits\":{\"sessions\":%" PRId64 ",\"message_bytes\":%" PRId64
                ",\"folder_bytes\":%" PRId64 ",\"memory_bytes\":%" PRId64, limits->sessions,
                limits->message_bytes, limits->folder_bytes, limits->memory_bytes);
  tw_text_print(&text, ",\"call_seconds\":%f,\"idle_seconds\":%f},\"session\":\"%s\",\"proof\":\"",
                limits->call_seconds, limits->idle_seconds, name);
  tw_print_hex(&text, proof, PROOF_BYTES);
  /* Clients make trials by calls of kernels. */
  tw_text_print(&text, "\",\"trials\":false}");
  bool is_sent = !text.failed && tw_message_send(it->channel, REPLY, number, text.data, 0);
  tw_text_free(&text);
  return is_sent;
}

/* The client proves itself over the certificate that it sees, and the server in turn. */
static bool greet(session *it, const tw_opening *opening, const char *name) {
  tw_arena arena = {0};
  tw_prefix asked = {0};
  int code;
  uint8_t digest[DIGEST_BYTES], given[PROOF_BYTES], proof[PROOF_BYTES];
  tw_channel_digest(it->settings, it->channel, digest);
  const tw_json *header = tw_message_receive(
      it->channel, &arena, &asked, GREETING_LIMIT, OPENING_SECONDS, &code);
  const tw_json *version = header ? tw_json_field(header, "version", TW_INTEGER) : NULL;
  bool is_good = version && version->integer == 1 && asked.kind == REQUEST && !asked.body &&
                 tw_proof_in(header, given) &&
                 tw_proof(it->settings, opening, "client", digest, sizeof digest, proof) &&
                 tw_is_proof(given, proof, PROOF_BYTES) &&
                 tw_proof(it->settings, opening, "server", digest, sizeof digest, proof) &&
                 send_facts(it, asked.number, name, proof);
  tw_give_back(&arena);
  return is_good;
}

static void confine(const tw_limits *limits) {
  struct rlimit none = {0, 0}, memory = {(rlim_t)limits->memory_bytes, (rlim_t)limits->memory_bytes};
  struct rlimit files = {(rlim_t)limits->folder_bytes, (rlim_t)limits->folder_bytes};
  umask(077);
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_FSIZE, &files);
  if (limits->memory_bytes) setrlimit(RLIMIT_DATA, &memory);
}

int tw_session(const tw_settings *settings, int socket, const tw_opening *opening,
               const char *name) {
  session it = {.settings = settings, .socket = socket, .lock = PTHREAD_MUTEX_INITIALIZER};
  it.calls.limits = &settings->limits;
  it.calls.trust = settings->trust.count ? &settings->trust : NULL;
  confine(&settings->limits);
  set_alarm(OPENING_SECONDS);
  it.channel = tw_channel_open(settings, socket, false);
  if (!it.channel || !greet(&it, opening, name)) return ENDED_REJECTED;
  set_alarm(0);
  pthread_t thread;
  if (pthread_create(&thread, NULL, beat, &it)) return 1;
  return serve_requests(&it);
}
