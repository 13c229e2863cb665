/* Proofs, certificates and encryption, by mbedTLS. */
#include <errno.h>
#include <mbedtls/constant_time.h>
#include <mbedtls/md.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl.h>
#include <mbedtls/x509_crt.h>
#include <poll.h>
#include <psa/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "serve.h"

/* ---- proofs ----------------------------------------------------------------------------------- */

bool tw_random(void *to, size_t size) { return psa_generate_random(to, size) == PSA_SUCCESS; }

static int add_part(mbedtls_md_context_t *mac, const void *data, uint64_t size) {
  uint8_t length[8];
  for (int k = 0; k < 8; k++) length[k] = (uint8_t)(size >> (56 - 8 * k));
  int code = mbedtls_md_hmac_update(mac, length, sizeof length);
  return code ? code : mbedtls_md_hmac_update(mac, data, (size_t)size);
}

typedef struct {
  const void *data;
  size_t size;
} part;

static bool prove(const tw_settings *settings, const char *purpose, const part *parts, size_t count,
                  uint8_t proof[PROOF_BYTES]) {
  static const char begin[] = "tilewright rpc 1 ";
  mbedtls_md_context_t mac;
  mbedtls_md_init(&mac);
  const uint8_t *word = (const uint8_t *)purpose;
  int code = mbedtls_md_setup(&mac, mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), 1);
  if (!code) code = mbedtls_md_hmac_starts(&mac, settings->key, KEY_BYTES);
  if (!code) code = mbedtls_md_hmac_update(&mac, (const uint8_t *)begin, sizeof begin - 1);
  if (!code) code = mbedtls_md_hmac_update(&mac, word, strlen(purpose));
  for (size_t k = 0; !code && k < count; k++) code = add_part(&mac, parts[k].data, parts[k].size);
  if (!code) code = mbedtls_md_hmac_finish(&mac, proof);
  mbedtls_md_free(&mac);
  return !code;
}

bool tw_proof(const tw_settings *settings, const tw_opening *opening, const char *purpose,
              const void *last, size_t size, uint8_t proof[PROOF_BYTES]) {
  uint8_t kinds[3] = {1, opening->role, opening->intent};
  part parts[] = {{kinds, sizeof kinds},
                  {opening->server_nonce, NONCE_BYTES},
                  {opening->client_nonce, NONCE_BYTES},
                  {opening->ticket, TICKET_BYTES},
                  {last, size}};
  return prove(settings, purpose, parts, last ? 5 : 4, proof);
}

bool tw_ticket_proof(const tw_settings *settings, const uint8_t chosen[TICKET_BYTES / 2],
                     uint8_t proof[PROOF_BYTES]) {
  part parts[] = {{settings->identity, IDENTITY_BYTES}, {chosen, TICKET_BYTES / 2}};
  return prove(settings, "ticket", parts, 2, proof);
}

bool tw_is_proof(const uint8_t *given, const uint8_t *expected, size_t size) {
  return mbedtls_ct_memcmp(given, expected, size) == 0;
}

/* ---- the certificate -------------------------------------------------------------------------- */

static int random_bytes(void *unused, unsigned char *to, size_t size) {
  (void)unused;
  return tw_random(to, size) ? 0 : -1;
}

static int write_certificate(tw_settings *settings, mbedtls_pk_context *key) {
  mbedtls_x509write_cert writer;
  uint8_t serial[16];
  mbedtls_x509write_crt_init(&writer);
  mbedtls_x509write_crt_set_version(&writer, MBEDTLS_X509_CRT_VERSION_3);
  mbedtls_x509write_crt_set_md_alg(&writer, MBEDTLS_MD_SHA256);
  mbedtls_x509write_crt_set_subject_key(&writer, key);
  mbedtls_x509write_crt_set_issuer_key(&writer, key);
  int code = tw_random(serial, sizeof serial) ? 0 : -1;
  serial[0] = (serial[0] & 0x7f) | 1;
  if (!code) code = mbedtls_x509write_crt_set_serial_raw(&writer, serial, sizeof serial);
  if (!code) code = mbedtls_x509write_crt_set_subject_name(&writer, "CN=tilewright-rpc");
  if (!code) code = mbedtls_x509write_crt_set_issuer_name(&writer, "CN=tilewright-rpc");
  /* Clocks of devices are often wrong, and nothing rests on these dates. */
  if (!code) code = mbedtls_x509write_crt_set_validity(&writer, "20200101000000", "20991231235959");
  uint8_t *room = settings->certificate;
  size_t size = sizeof settings->certificate;
  if (!code) code = mbedtls_x509write_crt_der(&writer, room, size, random_bytes, NULL);
  mbedtls_x509write_crt_free(&writer);
  if (code <= 0) return -1;
  /* It is written at the end of the room. */
  memmove(room, room + size - (size_t)code, (size_t)code);
  settings->certificate_size = (size_t)code;
  return 0;
}

bool tw_make_certificate(tw_settings *settings) {
  mbedtls_pk_context key;
  mbedtls_pk_init(&key);
  int code = mbedtls_pk_setup(&key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY));
  if (!code)
    code = mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(key), random_bytes, NULL);
  if (!code) code = write_certificate(settings, &key);
  uint8_t *room = settings->private_key;
  size_t size = sizeof settings->private_key;
  int written = code ? -1 : mbedtls_pk_write_key_der(&key, room, size);
  mbedtls_pk_free(&key);
  if (written <= 0) return false;
  memmove(room, room + size - (size_t)written, (size_t)written);
  settings->private_key_size = (size_t)written;
  return true;
}

static void digest_of(const uint8_t *data, size_t size, uint8_t digest[DIGEST_BYTES]) {
  mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), data, size, digest);
}

/* ---- TLS -------------------------------------------------------------------------------------- */

struct tw_channel {
  int socket, patience_ms;
  mbedtls_ssl_context tls;
  mbedtls_ssl_config config;
  mbedtls_x509_crt certificate;
  mbedtls_pk_context key;
};

static bool is_ready(int socket, short what, int patience_ms) {
  struct pollfd asked = {.fd = socket, .events = what};
  int found;
  do found = poll(&asked, 1, patience_ms);
  while (found < 0 && errno == EINTR);
  return found > 0;
}

static int send_some(void *context, const unsigned char *data, size_t size) {
  tw_channel *channel = context;
  if (!is_ready(channel->socket, POLLOUT, PATIENCE_SECONDS * 1000)) return MBEDTLS_ERR_SSL_TIMEOUT;
  ssize_t sent = send(channel->socket, data, size, MSG_NOSIGNAL);
  return sent < 0 ? MBEDTLS_ERR_SSL_CONN_EOF : (int)sent;
}

static int receive_some(void *context, unsigned char *to, size_t size) {
  tw_channel *channel = context;
  if (!is_ready(channel->socket, POLLIN, channel->patience_ms)) return MBEDTLS_ERR_SSL_TIMEOUT;
  ssize_t got = recv(channel->socket, to, size, 0);
  return got <= 0 ? MBEDTLS_ERR_SSL_CONN_EOF : (int)got;
}

void tw_channel_digest(const tw_settings *settings, const tw_channel *channel,
                       uint8_t digest[DIGEST_BYTES]) {
  const mbedtls_x509_crt *theirs = mbedtls_ssl_get_peer_cert(&channel->tls);
  if (theirs)
    digest_of(theirs->raw.p, theirs->raw.len, digest);
  else
    digest_of(settings->certificate, settings->certificate_size, digest);
}

static int set_certificate(const tw_settings *settings, tw_channel *made) {
  int code = mbedtls_x509_crt_parse_der(&made->certificate, settings->certificate,
                                        settings->certificate_size);
  if (!code)
    code = mbedtls_pk_parse_key(&made->key, settings->private_key, settings->private_key_size, NULL,
                                0, random_bytes, NULL);
  return code ? code : mbedtls_ssl_conf_own_cert(&made->config, &made->certificate, &made->key);
}

tw_channel *tw_channel_open(const tw_settings *settings, int socket, bool is_client) {
  tw_channel *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->socket = socket;
  made->patience_ms = OPENING_SECONDS * 1000;
  mbedtls_ssl_init(&made->tls);
  mbedtls_ssl_config_init(&made->config);
  mbedtls_x509_crt_init(&made->certificate);
  mbedtls_pk_init(&made->key);
  int code = mbedtls_ssl_config_defaults(
      &made->config, is_client ? MBEDTLS_SSL_IS_CLIENT : MBEDTLS_SSL_IS_SERVER,
      MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
  mbedtls_ssl_conf_rng(&made->config, random_bytes, NULL);
  mbedtls_ssl_conf_min_tls_version(&made->config, MBEDTLS_SSL_VERSION_TLS1_3);
  mbedtls_ssl_conf_authmode(&made->config, MBEDTLS_SSL_VERIFY_NONE);
  if (!code && !is_client) code = set_certificate(settings, made);
  if (!code) code = mbedtls_ssl_setup(&made->tls, &made->config);
  mbedtls_ssl_set_bio(&made->tls, made, send_some, receive_some, NULL);
  while (!code) {
    code = mbedtls_ssl_handshake(&made->tls);
    if (!code) return made;
    if (code == MBEDTLS_ERR_SSL_WANT_READ || code == MBEDTLS_ERR_SSL_WANT_WRITE) code = 0;
  }
  tw_channel_close(made);
  return NULL;
}

void tw_channel_close(tw_channel *channel) {
  mbedtls_ssl_free(&channel->tls);
  mbedtls_ssl_config_free(&channel->config);
  mbedtls_x509_crt_free(&channel->certificate);
  mbedtls_pk_free(&channel->key);
  free(channel);
}

int tw_channel_read(tw_channel *channel, void *to, size_t size, double patience) {
  size_t done = 0;
  channel->patience_ms = (int)(patience * 1000);
  while (done < size) {
    int got = mbedtls_ssl_read(&channel->tls, (uint8_t *)to + done, size - done);
    if (got == MBEDTLS_ERR_SSL_WANT_READ || got == MBEDTLS_ERR_SSL_WANT_WRITE) continue;
    if (got == MBEDTLS_ERR_SSL_TIMEOUT) return 2;
    if (got <= 0) return 1;
    done += (size_t)got;
  }
  return 0;
}

bool tw_channel_write(tw_channel *channel, const void *data, size_t size) {
  size_t done = 0;
  while (done < size) {
    int sent = mbedtls_ssl_write(&channel->tls, (const uint8_t *)data + done, size - done);
    if (sent == MBEDTLS_ERR_SSL_WANT_READ || sent == MBEDTLS_ERR_SSL_WANT_WRITE) continue;
    if (sent <= 0) return false;
    done += (size_t)sent;
  }
  return true;
}
