/* How a connection begins: in the clear, with random numbers of both sides and a first proof. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "serve.h"

enum { GRANTED = 1, TURNED_AWAY = 2, LISTENER = 40, CLIENT = 104, LONGEST = 512 };
static const uint8_t magic[5] = {'T', 'W', 'R', 'P', 'C'};

/* All bytes before the deadline, however slowly they come. */
static bool read_all(int socket, uint8_t *to, size_t size, double deadline) {
  for (size_t done = 0; done < size;) {
    struct pollfd asked = {.fd = socket, .events = POLLIN};
    double left = deadline - tw_now();
    if (left <= 0 || poll(&asked, 1, (int)(left * 1000) + 1) <= 0) return false;
    ssize_t got = recv(socket, to + done, size - done, 0);
    if (got <= 0) return false;
    done += (size_t)got;
  }
  return true;
}

bool tw_challenge(const tw_settings *settings, int socket, tw_opening *opening) {
  uint8_t first[LISTENER] = {0}, second[CLIENT], proof[PROOF_BYTES];
  double deadline = tw_now() + OPENING_SECONDS;
  opening->role = ROLE_SERVER;
  if (!tw_random(opening->server_nonce, NONCE_BYTES)) return false;
  memcpy(first, magic, sizeof magic);
  first[5] = 1;
  first[6] = ROLE_SERVER;
  memcpy(first + 8, opening->server_nonce, NONCE_BYTES);
  if (send(socket, first, sizeof first, MSG_NOSIGNAL) != (ssize_t)sizeof first) return false;
  if (!read_all(socket, second, sizeof second, deadline)) return false;
  opening->intent = second[6];
  memcpy(opening->client_nonce, second + 8, NONCE_BYTES);
  memcpy(opening->ticket, second + 8 + NONCE_BYTES, TICKET_BYTES);
  bool is_ours = !memcmp(second, magic, sizeof magic) && second[5] == 1 && !second[7] &&
                 (opening->intent == INTENT_OPEN || opening->intent == INTENT_FATE);
  return is_ours && tw_proof(settings, opening, "gate", NULL, 0, proof) &&
         tw_is_proof(second + CLIENT - PROOF_BYTES, proof, PROOF_BYTES);
}

bool tw_send_verdict(const tw_settings *settings, int socket, const tw_opening *opening,
                     bool is_granted, const char *text) {
  uint8_t message[3 + LONGEST + PROOF_BYTES] = {is_granted ? GRANTED : TURNED_AWAY};
  size_t size = strlen(text) < LONGEST ? strlen(text) : LONGEST;
  message[1] = (uint8_t)(size >> 8);
  message[2] = (uint8_t)size;
  memcpy(message + 3, text, size);
  if (!tw_proof(settings, opening, "verdict", message, 3 + size, message + 3 + size)) return false;
  size_t whole = 3 + size + PROOF_BYTES;
  return send(socket, message, whole, MSG_NOSIGNAL) == (ssize_t)whole;
}

/* What a listener says to a proof: whether it grants the connection. */
static bool is_granted(const tw_settings *settings, int socket, const tw_opening *opening) {
  uint8_t message[3 + LONGEST + PROOF_BYTES], proof[PROOF_BYTES];
  double deadline = tw_now() + OPENING_SECONDS;
  if (!read_all(socket, message, 3, deadline)) return false;
  size_t size = (size_t)message[1] << 8 | message[2];
  return size <= LONGEST && read_all(socket, message + 3, size + PROOF_BYTES, deadline) &&
         tw_proof(settings, opening, "verdict", message, 3 + size, proof) &&
         tw_is_proof(message + 3 + size, proof, PROOF_BYTES) && message[0] == GRANTED;
}

bool tw_authenticate(const tw_settings *settings, int socket, tw_opening *opening) {
  uint8_t first[LISTENER], second[CLIENT] = {0};
  *opening = (tw_opening){.role = ROLE_TRACKER, .intent = INTENT_OPEN};
  if (!read_all(socket, first, sizeof first, tw_now() + OPENING_SECONDS)) return false;
  if (memcmp(first, magic, sizeof magic) || first[5] != 1 || first[6] != ROLE_TRACKER || first[7])
    return false;
  memcpy(opening->server_nonce, first + 8, NONCE_BYTES);
  if (!tw_random(opening->client_nonce, NONCE_BYTES)) return false;
  memcpy(second, magic, sizeof magic);
  second[5] = 1;
  second[6] = opening->intent;
  memcpy(second + 8, opening->client_nonce, NONCE_BYTES);
  return tw_proof(settings, opening, "gate", NULL, 0, second + CLIENT - PROOF_BYTES) &&
         send(socket, second, sizeof second, MSG_NOSIGNAL) == (ssize_t)sizeof second &&
         is_granted(settings, socket, opening);
}
