/* What serves this machine to remote clients; docs/rpc_protocol.md has the protocol. */
#ifndef TILEWRIGHT_SERVE_H
#define TILEWRIGHT_SERVE_H

#include <sys/types.h>

#include "../internal.h"

enum { KEY_BYTES = 32, NONCE_BYTES = 32, TICKET_BYTES = 32, PROOF_BYTES = 32, DIGEST_BYTES = 32 };
enum { IDENTITY_BYTES = 16 };
enum { OPENING_SECONDS = 10, PATIENCE_SECONDS = 15, HEADER_LIMIT = 1 << 20 };
/* How the process of a session ends, as its exit code. */
enum { CLOSED = 0, ENDED_IDLE = 3, ENDED_DAMAGED = 4, ENDED_REJECTED = 5 };

typedef struct tw_limits {
  int64_t sessions, message_bytes, folder_bytes, memory_bytes;
  double call_seconds, idle_seconds;
} tw_limits;

/* All that sessions are told. */
typedef struct tw_settings {
  const char *host, *name, *target;
  /* Who gives this machine out, as address:port; NULL where nobody does. */
  const char *tracker;
  /* What tickets for it are made out to. */
  uint8_t identity[IDENTITY_BYTES];
  int32_t port;
  uint8_t key[KEY_BYTES];
  tw_limits limits;
  /* Whose artifacts are run; everybody's where it names nobody. */
  tw_trust trust;
  /* The certificate and its private key, in binary form. */
  uint8_t certificate[1024], private_key[256];
  size_t certificate_size, private_key_size;
} tw_settings;

/* What both sides know after the first two messages. */
enum { ROLE_SERVER = 1, ROLE_TRACKER = 2 };
typedef struct tw_opening {
  uint8_t role, intent;
  uint8_t server_nonce[NONCE_BYTES], client_nonce[NONCE_BYTES], ticket[TICKET_BYTES];
} tw_opening;

/* An HMAC by the key over the opening and, where there is one, a last part. */
bool tw_proof(const tw_settings *settings, const tw_opening *opening, const char *purpose,
              const void *last, size_t size, uint8_t proof[PROOF_BYTES]);
/* What the second half of a ticket for this machine begins with, whose first half is `chosen`. */
bool tw_ticket_proof(const tw_settings *settings, const uint8_t chosen[TICKET_BYTES / 2],
                     uint8_t proof[PROOF_BYTES]);
bool tw_is_proof(const uint8_t *given, const uint8_t *expected, size_t size);
bool tw_random(void *to, size_t size);
bool tw_make_certificate(tw_settings *settings);

/* Ask whoever has connected for a proof. */
enum { INTENT_OPEN = 1, INTENT_FATE = 2 };
bool tw_challenge(const tw_settings *settings, int socket, tw_opening *opening);
/* The other side: prove to a tracker that this machine has the key. */
bool tw_authenticate(const tw_settings *settings, int socket, tw_opening *opening);
/* Tell the client what it gets, so that it can tell who says so. */
bool tw_send_verdict(const tw_settings *settings, int socket, const tw_opening *opening,
                     bool is_granted, const char *text);

/* ---- encrypted connections -------------------------------------------------------------------- */

typedef struct tw_channel tw_channel;
/* NULL where the handshake fails. */
tw_channel *tw_channel_open(const tw_settings *settings, int socket, bool is_client);
void tw_channel_close(tw_channel *channel);
/* Of the certificate of whoever listens: the peer's, or this machine's own. */
void tw_channel_digest(const tw_settings *settings, const tw_channel *channel,
                       uint8_t digest[DIGEST_BYTES]);
/* All bytes, each part of which must come in so many seconds; 0: all are there, 1: the peer has
   gone, 2: nothing came in time. */
int tw_channel_read(tw_channel *channel, void *to, size_t size, double patience);
bool tw_channel_write(tw_channel *channel, const void *data, size_t size);

/* ---- messages --------------------------------------------------------------------------------- */

enum { REQUEST = 1, REPLY = 2, FAILURE = 3, ALIVE = 4 };
enum { GREETING_LIMIT = 4096 };

/* What is known of a message before its body is read. */
typedef struct tw_prefix {
  uint8_t kind;
  uint32_t number;
  uint64_t header, body;
} tw_prefix;

/* Send a message up to its body. */
bool tw_message_send(tw_channel *channel, uint8_t kind, uint32_t number, const char *header,
                     uint64_t body);
/* The next message up to its body; NULL and an exit code where there is none that makes sense. */
const tw_json *tw_message_receive(tw_channel *channel, tw_arena *arena, tw_prefix *found,
                                  uint64_t body_limit, double patience, int *code);
/* Proofs in headers are texts. */
bool tw_proof_in(const tw_json *header, uint8_t proof[PROOF_BYTES]);
void tw_print_hex(tw_text *text, const uint8_t *data, size_t size);

/* ---- sessions --------------------------------------------------------------------------------- */

enum { REMEMBERED = 256, USED_TICKETS = 4096 };

/* A connection's process, and how it ended. Server and processes share these. */
typedef struct tw_row {
  pid_t process;
  /* Whether it serves a client that was let in; whether it has ended, and by what status; whether
     the tracker was told. */
  int is_session, has_ended, status, is_told;
  char name[2 * TICKET_BYTES + 1];
  uint8_t ticket[TICKET_BYTES];
} tw_row;

typedef struct tw_board {
  int sessions;
  tw_row rows[REMEMBERED];
  /* Tickets that have let somebody in, the next of which takes the place of the oldest. */
  int is_locked;
  size_t used_count;
  uint8_t used[USED_TICKETS][TICKET_BYTES];
} tw_board;

/* Why a ticket lets nobody in, NULL where it does: then it does not again. */
const char *tw_why_no_ticket(const tw_settings *settings, tw_board *shared, const uint8_t *ticket);
/* Whether it is an address and a port, in numbers. */
bool tw_is_address(const char *text);
/* Tell the tracker what this machine is at work for, for as long as the process lives. */
void tw_register(const tw_settings *settings, tw_board *shared);
/* Small messages go at once, and a peer whose machine has gone is noticed in seconds. */
void tw_keep_alive(int socket);

/* Serve one client on a connection whose opening was granted; the exit code of its process. */
int tw_session(const tw_settings *settings, int socket, const tw_opening *opening,
               const char *session);
/* Serve until a signal ends it. */
bool tw_serve(tw_settings *settings, tw_error *error);
int tw_serve_command(int count, char **words, const char *usage);

/* ---- calls ------------------------------------------------------------------------------------ */

enum { MOST_MODELS = 64, MOST_KERNELS = 1024, MOST_ARRAYS = 4096, MOST_SAMPLES = 1 << 20 };

typedef struct tw_kernel tw_kernel;

/* What a session holds, and the answer to the request that it is at. */
typedef struct tw_calls {
  const tw_limits *limits;
  /* Whose artifacts are run; NULL: everybody's. */
  const tw_trust *trust;
  tw_model *models[MOST_MODELS];
  int64_t sizes[MOST_MODELS];
  tw_kernel *kernels[MOST_KERNELS];
  /* The arrays of a request. */
  tw_array *arrays;
  size_t array_count;
  /* The answer: fields without braces, and arrays. */
  tw_text fields;
  tw_array *results;
  size_t result_count;
} tw_calls;

/* Whether a request makes sense; if not, the connection ends. What it asks for may have failed:
   then `error` says why. */
typedef enum { ANSWERED, REFUSED, WRONG } tw_outcome;
tw_outcome tw_call_answer(tw_calls *calls, const tw_json *header, tw_error *error);
/* A model out of a file that was received. */
tw_outcome tw_call_load(tw_calls *calls, const tw_json *header, int file, int64_t size,
                        tw_error *error);
void tw_call_clear(tw_calls *calls);
/* An answer's array, of one dimension where it has no columns; its memory is the answer's from now
   on. */
bool tw_give_array(tw_calls *calls, const char *type, int64_t rows, int64_t columns, void *data);
/* Calls about single kernels. */
bool tw_is_kernel_call(const char *name);
tw_outcome tw_kernel_answer(tw_calls *calls, const char *name, const tw_json *header,
                            tw_error *error);

#endif
