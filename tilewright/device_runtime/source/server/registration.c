/* A server's link to its tracker, and the tickets that this gives to clients. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <psa/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve.h"

enum { DEVICE_SECONDS = 5, RETRY_MICROSECONDS = 1000000, LOOK_MICROSECONDS = 50000 };

/* ---- tickets ---------------------------------------------------------------------------------- */

static bool is_ours(const tw_settings *settings, const uint8_t *ticket) {
  uint8_t proof[PROOF_BYTES];
  size_t half = TICKET_BYTES / 2;
  return tw_ticket_proof(settings, ticket, proof) && tw_is_proof(ticket + half, proof, half);
}

/* Those who look at the tickets come one after the other; nobody takes long. */
static bool lock(tw_board *shared) {
  for (double end = tw_now() + 1; tw_now() < end; usleep(100))
    if (!__atomic_exchange_n(&shared->is_locked, 1, __ATOMIC_ACQUIRE)) return true;
  return false;
}

static bool is_new(tw_board *shared, const uint8_t *ticket) {
  size_t count = shared->used_count < USED_TICKETS ? shared->used_count : USED_TICKETS;
  for (size_t k = 0; k < count; k++)
    if (!memcmp(shared->used[k], ticket, TICKET_BYTES)) return false;
  memcpy(shared->used[shared->used_count++ % USED_TICKETS], ticket, TICKET_BYTES);
  return true;
}

const char *tw_why_no_ticket(const tw_settings *settings, tw_board *shared, const uint8_t *ticket) {
  static char text[256];
  if (!settings->tracker) return NULL;
  if (!is_ours(settings, ticket)) {
    snprintf(text, sizeof text, "it is given out by the tracker at %s: request it there",
             settings->tracker);
    return text;
  }
  bool is_held = lock(shared), is_good = is_held && is_new(shared, ticket);
  if (is_held) __atomic_store_n(&shared->is_locked, 0, __ATOMIC_RELEASE);
  return is_good ? NULL : "the ticket has been used";
}

/* ---- the connection --------------------------------------------------------------------------- */

static bool read_address(const char *text, struct sockaddr_in *address) {
  char host[64];
  int port = 0, used = 0;
  if (sscanf(text, "%63[0-9.]:%5d%n", host, &port, &used) != 2 || text[used]) return false;
  *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  return port > 0 && port < 65536 && inet_pton(AF_INET, host, &address->sin_addr) == 1;
}

bool tw_is_address(const char *text) {
  struct sockaddr_in address;
  return read_address(text, &address);
}

static int dial(const char *address) {
  struct sockaddr_in there;
  struct timeval patience = {OPENING_SECONDS, 0};
  int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (made < 0) return -1;
  setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  tw_keep_alive(made);
  bool is_known = read_address(address, &there);
  if (is_known && !connect(made, (struct sockaddr *)&there, sizeof there)) return made;
  close(made);
  return -1;
}

/* One request; whether the tracker agrees to it. Its answer is `header`, which `arena` holds. */
static const tw_json *asked(tw_channel *channel, const char *text, tw_arena *arena) {
  tw_prefix found = {.kind = ALIVE};
  const tw_json *header = NULL;
  int code;
  if (!tw_message_send(channel, REQUEST, 1, text, 0)) return NULL;
  while (found.kind == ALIVE) {
    header = tw_message_receive(channel, arena, &found, 0, DEVICE_SECONDS, &code);
    if (!header) return NULL;
  }
  return found.kind == REPLY && found.number == 1 ? header : NULL;
}

/* Both sides prove themselves over the certificate that they see. */
static bool introduce(const tw_settings *settings, tw_channel *channel, const tw_opening *opening) {
  uint8_t digest[DIGEST_BYTES], proof[PROOF_BYTES], given[PROOF_BYTES];
  tw_text text = {0};
  tw_arena arena = {0};
  tw_channel_digest(settings, channel, digest);
  bool is_good = tw_proof(settings, opening, "client", digest, sizeof digest, proof);
  tw_text_print(&text, "{\"version\":1,\"client\":");
  tw_json_write_text(&text, settings->name);
  tw_text_print(&text, ",\"proof\":\"");
  tw_print_hex(&text, proof, PROOF_BYTES);
  tw_text_print(&text, "\"}");
  const tw_json *header = is_good && !text.failed ? asked(channel, text.data, &arena) : NULL;
  is_good = header && tw_proof_in(header, given) &&
            tw_proof(settings, opening, "server", digest, sizeof digest, proof) &&
            tw_is_proof(given, proof, PROOF_BYTES);
  tw_text_free(&text);
  tw_give_back(&arena);
  return is_good;
}

/* ---- what it is told -------------------------------------------------------------------------- */

static void print_tickets(tw_text *text, const tw_board *shared, const bool *are_listed) {
  const char *between = "";
  tw_text_print(text, "[");
  for (int k = 0; k < REMEMBERED; k++) {
    if (!are_listed[k]) continue;
    tw_text_print(text, "%s\"", between);
    tw_print_hex(text, shared->rows[k].ticket, TICKET_BYTES);
    tw_text_print(text, "\"");
    between = ",";
  }
  tw_text_print(text, "]");
}

static void print_about(tw_text *text, const tw_settings *settings) {
  tw_text_print(text, "{\"call\":\"register\",\"host\":\"\",\"name\":");
  tw_json_write_text(text, settings->name);
  tw_text_print(text, ",\"target\":");
  tw_json_write_text(text, settings->target);
  tw_text_print(text, ",\"port\":%d,\"sessions\":%" PRId64 ",\"identity\":\"",
                (int)settings->port, settings->limits.sessions);
  tw_print_hex(text, settings->identity, IDENTITY_BYTES);
  tw_text_print(text, "\"");
}

/* Which sessions run, and which have ended since the tracker was told. */
static void look(tw_board *shared, bool *running, bool *over) {
  for (int k = 0; k < REMEMBERED; k++) {
    tw_row *row = &shared->rows[k];
    bool is_session = __atomic_load_n(&row->is_session, __ATOMIC_ACQUIRE);
    bool has_ended = __atomic_load_n(&row->has_ended, __ATOMIC_ACQUIRE);
    running[k] = is_session && !has_ended;
    over[k] = is_session && has_ended && !row->is_told;
  }
}

/* Tell all there is to know: a tracker that starts anew knows it again. */
static bool tell(const tw_settings *settings, tw_board *shared, tw_channel *channel, bool is_first,
                 const bool *running, const bool *over) {
  tw_text text = {0};
  tw_arena arena = {0};
  if (is_first)
    print_about(&text, settings);
  else
    tw_text_print(&text, "{\"call\":\"beat\"");
  tw_text_print(&text, ",\"running\":");
  print_tickets(&text, shared, running);
  tw_text_print(&text, ",\"ended\":");
  print_tickets(&text, shared, over);
  tw_text_print(&text, "}");
  bool is_told = !text.failed && asked(channel, text.data, &arena);
  for (int k = 0; is_told && !is_first && k < REMEMBERED; k++)
    if (over[k]) shared->rows[k].is_told = 1;
  tw_text_free(&text);
  tw_give_back(&arena);
  return is_told;
}

static void beat(const tw_settings *settings, tw_board *shared, tw_channel *channel) {
  bool running[REMEMBERED], over[REMEMBERED], last[REMEMBERED];
  look(shared, running, over);
  if (!tell(settings, shared, channel, true, running, over)) return;
  for (double told = 0;; usleep(LOOK_MICROSECONDS)) {
    memcpy(last, running, sizeof last);
    look(shared, running, over);
    bool has_ended = memchr(over, 1, sizeof over) != NULL;
    if (!has_ended && !memcmp(last, running, sizeof last) && tw_now() - told < 1) continue;
    if (!tell(settings, shared, channel, false, running, over)) return;
    told = tw_now();
  }
}

void tw_register(const tw_settings *settings, tw_board *shared) {
  /* Random numbers of this process alone. */
  if (psa_crypto_init() != PSA_SUCCESS) return;
  for (;; usleep(RETRY_MICROSECONDS)) {
    tw_opening opening;
    int socket = dial(settings->tracker);
    if (socket < 0) continue;
    tw_channel *channel = tw_authenticate(settings, socket, &opening)
                              ? tw_channel_open(settings, socket, true)
                              : NULL;
    if (channel && introduce(settings, channel, &opening)) beat(settings, shared, channel);
    if (channel) tw_channel_close(channel);
    close(socket);
  }
}
