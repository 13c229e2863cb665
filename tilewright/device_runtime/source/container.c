/* The container of an artifact: a zip file whose members are stored, aligned and checked.

   The directory at its end names the members; each has a header of its own before its data, which
   must agree. Large files have the extensions of zip64. Anything else is refused. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "internal.h"

enum { ALIGNMENT = 64, END = 22, LOCATOR = 20, END64 = 56, ENTRY = 46, LOCAL = 30, UTF8 = 0x800 };
#define MANIFEST_LIMIT ((uint64_t)1 << 28)
#define MEMBER_LIMIT ((uint64_t)1 << 14)

static uint64_t number(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  while (bytes--) value = value << 8 | at[bytes];
  return value;
}

/* ---- the directory ---------------------------------------------------------------------------- */

typedef struct {
  uint64_t count, size, offset;
} directory;

/* Where the directory lies; it must end where what tells of it begins. */
static bool find_directory(const tw_container *file, directory *found, tw_error *error) {
  const uint8_t *end = file->size >= END ? file->map + file->size - END : NULL;
  if (!end || memcmp(end, "PK\5\6", 4) || number(end + 20, 2))
    return tw_fail(error, "it is no artifact, or damaged: it does not end as one");
  uint64_t ends_at = file->size - END;
  found->count = number(end + 10, 2);
  found->size = number(end + 12, 4);
  found->offset = number(end + 16, 4);
  bool is_large = found->count == 0xffff || found->size == 0xffffffff || found->offset == 0xffffffff;
  if (is_large) {
    const uint8_t *locator = end - LOCATOR, *large = locator - END64;
    if (file->size < END + LOCATOR + END64 || memcmp(locator, "PK\6\7", 4) ||
        memcmp(large, "PK\6\6", 4) || number(locator + 8, 8) != (uint64_t)(large - file->map))
      return tw_fail(error, "it is no artifact, or damaged: its directory is not to be found");
    found->count = number(large + 32, 8);
    found->size = number(large + 40, 8);
    found->offset = number(large + 48, 8);
    ends_at -= LOCATOR + END64;
  }
  if (found->offset > ends_at || found->size != ends_at - found->offset ||
      found->count > MEMBER_LIMIT || found->count * ENTRY > found->size)
    return tw_fail(error, "it is no artifact, or damaged: its directory is out of place");
  return true;
}

/* Numbers that do not fit their place in an entry stand in a field behind its name. */
static bool read_large(const uint8_t *extra, size_t room, uint64_t *values[], int count) {
  while (room >= 4) {
    size_t size = number(extra + 2, 2), at = 4;
    if (size > room - 4) return false;
    for (int k = 0; number(extra, 2) == 1 && k < count; k++) {
      if (*values[k] != 0xffffffff) continue;
      if (at + 8 > size + 4) return false;
      *values[k] = number(extra + at, 8);
      at += 8;
    }
    extra += size + 4, room -= size + 4;
  }
  return room == 0;
}

static bool is_allowed(const char *name, size_t size) {
  static const char allowed[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-/";
  bool is_start = true;
  for (size_t k = 0; k < size; k++) {
    if (!name[k] || !strchr(allowed, name[k])) return false;
    if (name[k] == '/' && is_start) return false;
    if (name[k] == '.' && k + 1 < size && name[k + 1] == '.') return false;
    is_start = name[k] == '/';
  }
  return !is_start;
}

/* ---- members ---------------------------------------------------------------------------------- */

/* The member that an entry tells of, held against its own header and its checksum. */
static bool read_member(const tw_container *file, tw_member *member, const uint8_t *entry,
                        const char *name, uint64_t at, uint64_t size, tw_error *error) {
  size_t name_size = number(entry + 28, 2);
  const uint8_t *local = file->map + at;
  if (at > file->size || file->size - at < LOCAL || memcmp(local, "PK\3\4", 4) ||
      number(local + 26, 2) != name_size || file->size - at - LOCAL < name_size ||
      memcmp(local + LOCAL, name, name_size))
    return tw_fail(error, "%s in it is damaged", name);
  uint64_t begin = at + LOCAL + name_size + number(local + 28, 2);
  if (begin > file->size || file->size - begin < size)
    return tw_fail(error, "it is cut short in %s", name);
  if (begin % ALIGNMENT) return tw_fail(error, "%s in it is not aligned: it was packed anew", name);
  member->name = name;
  member->data = file->map + begin;
  member->size = (size_t)size;
  bool is_checked_later = !strcmp(name, "params.bin");
  if (!is_checked_later && tw_crc32(member->data, member->size) != number(entry + 16, 4))
    return tw_fail(error, "%s in it is damaged", name);
  return true;
}

static bool read_entry(tw_container *file, tw_arena *arena, const uint8_t **at, size_t *left,
                       tw_error *error) {
  const uint8_t *entry = *at;
  if (*left < ENTRY || memcmp(entry, "PK\1\2", 4))
    return tw_fail(error, "it is no artifact, or damaged: its directory is cut short");
  size_t name_size = number(entry + 28, 2), extra = number(entry + 30, 2);
  size_t whole = ENTRY + name_size + extra + number(entry + 32, 2);
  if (*left < whole)
    return tw_fail(error, "it is no artifact, or damaged: its directory is cut short");
  if (!is_allowed((const char *)entry + ENTRY, name_size))
    return tw_fail(error, "a name in it is not allowed");
  char *name = tw_take_text(arena, (const char *)entry + ENTRY, name_size);
  if (!name) return tw_no_memory(error);
  if (tw_container_find(file, name)) return tw_fail(error, "%s is in it twice", name);
  uint64_t stored = number(entry + 20, 4), size = number(entry + 24, 4);
  uint64_t offset = number(entry + 42, 4), *large[] = {&size, &stored, &offset};
  if (!read_large(entry + ENTRY + name_size, extra, large, 3))
    return tw_fail(error, "%s in it is damaged", name);
  if (number(entry + 10, 2) || stored != size)
    return tw_fail(error, "%s in it is compressed", name);
  if (number(entry + 8, 2) & ~(uint64_t)UTF8)
    return tw_fail(error, "%s in it is encrypted or streamed", name);
  if (!strcmp(name, "manifest.json") && size > MANIFEST_LIMIT)
    return tw_fail(error, "%s in it is too large", name);
  if (!read_member(file, &file->members[file->count], entry, name, offset, size, error))
    return false;
  file->count++;
  *at += whole, *left -= whole;
  return true;
}

bool tw_container_open(tw_container *container, tw_arena *arena, int file, tw_error *error) {
  struct stat about;
  if (fstat(file, &about)) return tw_fail(error, "%s", strerror(errno));
  if (!S_ISREG(about.st_mode)) return tw_fail(error, "it is no file");
  if (about.st_size <= 0) return tw_fail(error, "it is empty");
  if ((uint64_t)about.st_size > SIZE_MAX / 2) return tw_fail(error, "it is too large to be mapped");
  container->size = (size_t)about.st_size;
  void *map = mmap(NULL, container->size, PROT_READ, MAP_PRIVATE, file, 0);
  if (map == MAP_FAILED) return tw_fail(error, "it cannot be mapped: %s", strerror(errno));
  container->map = map;
  directory found = {0, 0, 0};
  if (!find_directory(container, &found, error)) return false;
  container->members = tw_take(arena, (size_t)found.count, sizeof *container->members);
  if (!container->members) return tw_no_memory(error);
  const uint8_t *at = container->map + found.offset;
  size_t left = (size_t)found.size;
  for (uint64_t k = 0; k < found.count; k++)
    if (!read_entry(container, arena, &at, &left, error)) return false;
  return left == 0 || tw_fail(error, "it is no artifact, or damaged: its directory is too long");
}

void tw_container_close(tw_container *container) {
  if (container->map) munmap((void *)(uintptr_t)container->map, container->size);
  container->map = NULL;
}

const tw_member *tw_container_find(const tw_container *container, const char *name) {
  for (size_t k = 0; k < container->count; k++)
    if (!strcmp(container->members[k].name, name)) return &container->members[k];
  return NULL;
}
