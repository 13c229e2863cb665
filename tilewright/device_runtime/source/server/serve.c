/* A server: lets those in who have the key, and gives each a session in a process of its own. */
#include "serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <psa/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNECTIONS = 64 };

/* ---- fates ------------------------------------------------------------------------------------ */

/* Whether a process sends a signal to itself, by what it computes. */
static bool is_fault(int number) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP};
  for (size_t k = 0; k < sizeof faults / sizeof *faults; k++)
    if (faults[k] == number) return true;
  return false;
}

/* A kind for programs, and words for people. */
static void tell_fate(const tw_settings *settings, int status, char *text, size_t room) {
  const tw_limits *limits = &settings->limits;
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (number == SIGALRM)
    snprintf(text, room, "time-out: a call took longer than the %g s that are allowed, or than its "
             "client allows (SIGALRM)", limits->call_seconds);
  else if (number)
    snprintf(text, room, "%s: its process ended by signal %d: %s",
             is_fault(number) ? "crash" : "killed", number, strsignal(number));
  else if (code == ENDED_IDLE)
    snprintf(text, room, "idle: it had nothing to do for %g s", limits->idle_seconds);
  else
    snprintf(text, room, "%s", code == CLOSED           ? "closed: it was closed"
                               : code == ENDED_DAMAGED  ? "damaged: it was sent damaged messages"
                               : code == ENDED_REJECTED ? "rejected: the client could not prove "
                                                          "that it has the key"
                                                        : "failed: it failed");
}

static void answer_fate(const tw_settings *settings, tw_board *shared, int socket,
                        const tw_opening *opening) {
  char name[2 * TICKET_BYTES + 1], text[256] = "";
  double end = tw_now() + 0.8 * OPENING_SECONDS;
  for (int k = 0; k < TICKET_BYTES; k++) snprintf(name + 2 * k, 3, "%02x", opening->ticket[k]);
  for (int k = 0; k < REMEMBERED; k++) {
    tw_row *found = &shared->rows[k];
    if (!found->is_session || strcmp(found->name, name)) continue;
    while (!__atomic_load_n(&found->has_ended, __ATOMIC_ACQUIRE) && tw_now() < end) usleep(20000);
    if (found->has_ended) tell_fate(settings, found->status, text, sizeof text);
  }
  tw_send_verdict(settings, socket, opening, true, text);
}

/* ---- one connection --------------------------------------------------------------------------- */

/* A session is reserved; false if there are none to be had, even after a while. */
static bool reserve(const tw_settings *settings, tw_board *shared) {
  for (double end = tw_now() + 3; tw_now() < end; usleep(20000)) {
    int count = __atomic_load_n(&shared->sessions, __ATOMIC_ACQUIRE);
    while (count < settings->limits.sessions)
      if (__atomic_compare_exchange_n(&shared->sessions, &count, count + 1, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE))
        return true;
  }
  return false;
}

static int serve_connection(const tw_settings *settings, tw_board *shared, tw_row *own, int socket) {
  tw_opening opening;
  uint8_t name[TICKET_BYTES];
  /* Random numbers of this process alone. */
  if (psa_crypto_init() != PSA_SUCCESS || !tw_random(name, sizeof name)) return ENDED_REJECTED;
  if (!tw_challenge(settings, socket, &opening)) return ENDED_REJECTED;
  if (opening.intent == INTENT_FATE) return answer_fate(settings, shared, socket, &opening), CLOSED;
  const char *refusal = tw_why_no_ticket(settings, shared, opening.ticket);
  if (refusal) {
    tw_send_verdict(settings, socket, &opening, false, refusal);
    return ENDED_REJECTED;
  }
  if (!reserve(settings, shared)) {
    char text[64];
    snprintf(text, sizeof text, "all of its %lld sessions are in use",
             (long long)settings->limits.sessions);
    tw_send_verdict(settings, socket, &opening, false, text);
    return ENDED_REJECTED;
  }
  for (int k = 0; k < TICKET_BYTES; k++) snprintf(own->name + 2 * k, 3, "%02x", name[k]);
  memcpy(own->ticket, opening.ticket, TICKET_BYTES);
  __atomic_store_n(&own->is_session, 1, __ATOMIC_RELEASE);
  if (!tw_send_verdict(settings, socket, &opening, true, "")) return ENDED_REJECTED;
  return tw_session(settings, socket, &opening, own->name);
}

/* ---- the listener ----------------------------------------------------------------------------- */

static volatile sig_atomic_t is_stopped;

static void stop(int number) {
  (void)number;
  is_stopped = 1;
}

/* Remember how processes ended, and count those that live. */
static int clear_up(tw_board *shared) {
  int status, alive = 0;
  pid_t ended;
  while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
    for (int k = 0; k < REMEMBERED; k++) {
      tw_row *found = &shared->rows[k];
      if (found->process != ended || found->has_ended) continue;
      found->status = status;
      if (found->is_session) __atomic_fetch_sub(&shared->sessions, 1, __ATOMIC_ACQ_REL);
      __atomic_store_n(&found->has_ended, 1, __ATOMIC_RELEASE);
    }
  for (int k = 0; k < REMEMBERED; k++)
    alive += shared->rows[k].process && !shared->rows[k].has_ended;
  return alive;
}

/* A row of nobody, or the next one of somebody who has gone. */
static tw_row *free_row(tw_board *shared) {
  static int next;
  for (int k = 0; k < REMEMBERED; k++) {
    tw_row *found = &shared->rows[next];
    next = (next + 1) % REMEMBERED;
    if (!found->process || found->has_ended) return found;
  }
  return NULL;
}

void tw_keep_alive(int socket) {
  static const int options[][2] = {
      {TCP_NODELAY, 1}, {TCP_KEEPIDLE, 5}, {TCP_KEEPINTVL, 2}, {TCP_KEEPCNT, 4},
      {TCP_USER_TIMEOUT, 15000}};
  int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  for (size_t k = 0; k < sizeof options / sizeof *options; k++)
    setsockopt(socket, IPPROTO_TCP, options[k][0], &options[k][1], sizeof(int));
}

/* A process of the server's own, which ends with it. */
static pid_t started(int listener) {
  pid_t server = getpid(), process = fork();
  if (process) return process;
  /* What the server handles ends it. */
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != server) _exit(CLOSED);
  close(listener);
  return 0;
}

/* See that a process speaks to the tracker, where there is one. */
static void keep_registered(const tw_settings *settings, tw_board *shared, int listener,
                            pid_t *process) {
  if (!settings->tracker || (*process > 0 && !kill(*process, 0))) return;
  *process = started(listener);
  if (*process) return;
  tw_register(settings, shared);
  _exit(CLOSED);
}

static void accept_one(const tw_settings *settings, tw_board *shared, int listener) {
  int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (socket < 0) return;
  int alive = clear_up(shared);
  tw_row *own = alive < CONNECTIONS + settings->limits.sessions ? free_row(shared) : NULL;
  if (own) {
    memset(own, 0, sizeof *own);
    pid_t process = started(listener);
    if (process == 0) {
      tw_keep_alive(socket);
      _exit(serve_connection(settings, shared, own, socket));
    }
    if (process > 0) own->process = process;
  }
  close(socket);
}

static int listen_at(tw_settings *settings) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)settings->port)};
  socklen_t size = sizeof address;
  int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (inet_pton(AF_INET, settings->host, &address.sin_addr) != 1) {
    errno = EINVAL;
    return -1;
  }
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
      bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, CONNECTIONS) ||
      getsockname(listener, (struct sockaddr *)&address, &size))
    return -1;
  settings->port = ntohs(address.sin_port);
  return listener;
}

bool tw_serve(tw_settings *settings, tw_error *error) {
  tw_board *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0);
  if (shared == MAP_FAILED) return tw_no_memory(error);
  if (settings->tracker && !tw_is_address(settings->tracker))
    return tw_fail(error, "%s is no address of a tracker: write one such as 192.168.0.7:9190",
                   settings->tracker);
  if (psa_crypto_init() != PSA_SUCCESS || !tw_make_certificate(settings) ||
      !tw_random(settings->identity, IDENTITY_BYTES))
    return tw_fail(error, "no certificate could be made");
  /* Processes begin anew: random numbers must not be those of others. */
  mbedtls_psa_crypto_free();
  int listener = listen_at(settings);
  if (listener < 0)
    return tw_fail(error, "cannot listen at %s:%d: %s", settings->host, (int)settings->port,
                   strerror(errno));
  struct sigaction action = {.sa_handler = stop};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  printf("serving %s at %s:%d\n", settings->name, settings->host, (int)settings->port);
  fflush(stdout);
  pid_t registration = 0;
  while (!is_stopped) {
    keep_registered(settings, shared, listener, &registration);
    fd_set ready;
    FD_ZERO(&ready);
    FD_SET(listener, &ready);
    /* Ends of processes are looked for as often. */
    struct timeval wait = {0, 50000};
    if (select(listener + 1, &ready, NULL, NULL, &wait) > 0) accept_one(settings, shared, listener);
    clear_up(shared);
  }
  for (int k = 0; k < REMEMBERED; k++)
    if (shared->rows[k].process && !shared->rows[k].has_ended) kill(shared->rows[k].process, SIGKILL);
  if (registration > 0) kill(registration, SIGKILL);
  close(listener);
  return true;
}
