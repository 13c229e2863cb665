/* Object files as one image in memory: code, then jumps to functions that are not defined here,
   then constants, then data that is written. Each part begins on a page of its own. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image.h"

#define LARGEST ((size_t)1 << 30)

typedef struct {
  tw_image *image;
  tw_object *objects;
  size_t count;
  /* Where code ends, and where data that is written begins. */
  size_t code_end, data_begin;
  tw_error *error;
} linker;

/* ---- names ------------------------------------------------------------------------------------ */

static struct tw_symbol *slot_of(const tw_image *image, const char *name) {
  size_t hash = 5381;
  for (const char *at = name; *at; at++) hash = hash * 33 + (unsigned char)*at;
  size_t k = hash & (image->symbol_room - 1);
  while (image->symbols[k].name && strcmp(image->symbols[k].name, name))
    k = (k + 1) & (image->symbol_room - 1);
  return &image->symbols[k];
}

static bool is_shared(const elf_symbol *symbol) { return BINDING(symbol->st_info) != STB_LOCAL; }

static bool collect_names(linker *it, tw_arena *arena) {
  size_t total = 8;
  for (size_t k = 0; k < it->count; k++) total += it->objects[k].symbol_count;
  it->image->symbol_room = 16;
  while (it->image->symbol_room < 2 * total) it->image->symbol_room *= 2;
  it->image->symbols = tw_take(arena, it->image->symbol_room, sizeof *it->image->symbols);
  if (!it->image->symbols) return tw_no_memory(it->error);
  for (size_t k = 0; k < it->count; k++) {
    const tw_object *object = &it->objects[k];
    for (size_t n = 1; n < object->symbol_count; n++) {
      const elf_symbol *symbol = &object->symbols[n];
      if (!is_shared(symbol)) continue;
      struct tw_symbol *slot = slot_of(it->image, object->names + symbol->st_name);
      slot->name = object->names + symbol->st_name;
      if (symbol->st_shndx == SHN_UNDEF) {
        slot->is_needed = slot->is_needed || BINDING(symbol->st_info) != STB_WEAK;
        continue;
      }
      if (slot->is_defined) return tw_fail(it->error, "its code defines %s twice", slot->name);
      slot->is_defined = true;
    }
  }
  return true;
}

static bool find_system_functions(linker *it) {
  for (size_t k = 0; k < it->image->symbol_room; k++) {
    struct tw_symbol *symbol = &it->image->symbols[k];
    if (!symbol->name || symbol->is_defined) continue;
    symbol->address = tw_system_function(symbol->name);
    if (!symbol->address && symbol->is_needed)
      return tw_fail(it->error, "its code calls %s, which this runtime does not have",
                     symbol->name);
  }
  return true;
}

/* ---- layout ----------------------------------------------------------------------------------- */

static bool take_room(linker *it, size_t size, size_t alignment, size_t *place) {
  size_t start = (it->image->size + alignment - 1) / alignment * alignment;
  if (start > LARGEST || size > LARGEST - start)
    return tw_fail(it->error, "its code is too large");
  it->image->size = start + size;
  if (place) *place = start;
  return true;
}

static bool lay_out(linker *it, uint64_t flags) {
  for (size_t k = 0; k < it->count; k++) {
    tw_object *object = &it->objects[k];
    for (size_t n = 0; n < object->section_count; n++) {
      const elf_section *section = &object->sections[n];
      if (object->places[n] == SIZE_MAX) continue;
      uint64_t own = section->sh_flags & (SHF_WRITE | SHF_EXECINSTR);
      if (own == (SHF_WRITE | SHF_EXECINSTR))
        return tw_fail(it->error, "%s in it has code that is written to", object->file->name);
      size_t alignment = section->sh_addralign ? (size_t)section->sh_addralign : 1;
      if (own == flags && !take_room(it, (size_t)section->sh_size, alignment, &object->places[n]))
        return false;
    }
  }
  return true;
}

typedef bool each_relocation(linker *it, tw_object *object, size_t section, size_t to,
                             const tw_relocation *relocation);

static bool for_each_relocation(linker *it, each_relocation *step) {
  for (size_t k = 0; k < it->count; k++) {
    tw_object *object = &it->objects[k];
    for (size_t n = 0; n < object->section_count; n++) {
      size_t to, count = tw_relocation_count(object, n, &to);
      if (!count) continue;
      if (to >= object->section_count) return tw_fail(it->error, "%s in it is damaged", object->file->name);
      for (size_t r = 0; object->places[to] != SIZE_MAX && r < count; r++) {
        tw_relocation relocation = tw_relocation_at(object, n, r);
        if (!step(it, object, n, to, &relocation)) return false;
      }
    }
  }
  return true;
}

/* Check a relocation, and take room for the jump that it needs. */
static bool prepare(linker *it, tw_object *object, size_t section, size_t to,
                    const tw_relocation *relocation) {
  (void)section;
  tw_aim aim = tw_relocation_aim(relocation->kind);
  uint64_t room = object->sections[to].sh_size, bytes = tw_relocation_bytes(relocation->kind);
  if (aim == TW_UNKNOWN)
    return tw_fail(it->error, "%s in it has relocations of the unknown kind %u", object->file->name,
                   (unsigned)relocation->kind);
  if (relocation->symbol >= object->symbol_count || relocation->offset > room ||
      bytes > room - relocation->offset || object->sections[to].sh_type == SHT_NOBITS)
    return tw_fail(it->error, "%s in it is damaged", object->file->name);
  const elf_symbol *symbol = &object->symbols[relocation->symbol];
  struct tw_symbol *shared =
      is_shared(symbol) ? slot_of(it->image, object->names + symbol->st_name) : NULL;
  bool is_far = shared && !shared->is_defined;
  if (aim != TW_WRITTEN && !(aim == TW_JUMP && is_far)) return true;
  size_t *jump = shared ? &shared->jump : &object->jumps[relocation->symbol];
  /* No jump lies at the very beginning: code does. */
  return *jump || take_room(it, TW_JUMP_BYTES, 16, jump);
}

/* ---- addresses -------------------------------------------------------------------------------- */

static void place_sections(linker *it) {
  for (size_t k = 0; k < it->count; k++) {
    tw_object *object = &it->objects[k];
    for (size_t n = 0; n < object->section_count; n++) {
      const elf_section *section = &object->sections[n];
      bool has_data = object->places[n] != SIZE_MAX && section->sh_type == SHT_PROGBITS;
      if (has_data && section->sh_size)
        memcpy(it->image->base + object->places[n], object->file->data + section->sh_offset,
               (size_t)section->sh_size);
    }
  }
}

static bool place_symbols(linker *it) {
  for (size_t k = 0; k < it->count; k++) {
    const tw_object *object = &it->objects[k];
    for (size_t n = 1; n < object->symbol_count; n++) {
      const elf_symbol *symbol = &object->symbols[n];
      if (!is_shared(symbol) || symbol->st_shndx == SHN_UNDEF) continue;
      bool is_loaded = symbol->st_shndx != SHN_ABS && object->places[symbol->st_shndx] != SIZE_MAX;
      const char *name = object->names + symbol->st_name;
      if (!is_loaded) return tw_fail(it->error, "its code defines %s where nothing is", name);
      slot_of(it->image, name)->address = (uintptr_t)it->image->base +
                                          object->places[symbol->st_shndx] +
                                          (uintptr_t)symbol->st_value;
    }
  }
  return true;
}

static bool address_of(const linker *it, const tw_object *object, size_t number,
                       uintptr_t *address) {
  const elf_symbol *symbol = &object->symbols[number];
  *address = 0;
  if (symbol->st_shndx == SHN_ABS) return *address = (uintptr_t)symbol->st_value, true;
  if (is_shared(symbol))
    return *address = slot_of(it->image, object->names + symbol->st_name)->address, true;
  if (symbol->st_shndx == SHN_UNDEF) return number == 0;
  size_t place = object->places[symbol->st_shndx];
  *address = (uintptr_t)it->image->base + place + (uintptr_t)symbol->st_value;
  return place != SIZE_MAX;
}

/* The relocation of the instruction at an offset, which has the upper half of an address. */
static bool find_upper_half(const tw_object *object, size_t section, size_t offset,
                            tw_relocation *found) {
  size_t to, low = 0, high = tw_relocation_count(object, section, &to);
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (tw_relocation_at(object, section, middle).offset < offset)
      low = middle + 1;
    else
      high = middle;
  }
  if (low >= tw_relocation_count(object, section, &to)) return false;
  *found = tw_relocation_at(object, section, low);
  tw_aim aim = tw_relocation_aim(found->kind);
  return found->offset == offset && !tw_relocation_is_low_half(found->kind) && aim != TW_NOTHING &&
         found->symbol < object->symbol_count;
}

static bool target_of(linker *it, const tw_object *object, const tw_relocation *relocation,
                      uintptr_t *target) {
  const elf_symbol *symbol = &object->symbols[relocation->symbol];
  if (!address_of(it, object, relocation->symbol, target)) return false;
  tw_aim aim = tw_relocation_aim(relocation->kind);
  size_t jump = object->jumps[relocation->symbol];
  if (is_shared(symbol)) jump = slot_of(it->image, object->names + symbol->st_name)->jump;
  if (jump && (aim == TW_JUMP || aim == TW_WRITTEN)) {
    uint8_t *at = it->image->base + jump;
    memcpy(at, tw_jump_code, tw_jump_size);
    memcpy(at + tw_jump_word, target, sizeof *target);
    *target = (uintptr_t)at + (aim == TW_WRITTEN ? tw_jump_word : 0);
  }
  *target += (uintptr_t)relocation->addend;
  return true;
}

static bool apply(linker *it, tw_object *object, size_t section, size_t to,
                  const tw_relocation *relocation) {
  if (tw_relocation_aim(relocation->kind) == TW_NOTHING) return true;
  uint8_t *at = it->image->base + object->places[to] + relocation->offset;
  uintptr_t target, place = (uintptr_t)at;
  tw_relocation source = *relocation;
  if (tw_relocation_is_low_half(relocation->kind)) {
    const elf_symbol *label = &object->symbols[relocation->symbol];
    if (label->st_shndx != to ||
        !find_upper_half(object, section, (size_t)label->st_value, &source))
      return tw_fail(it->error, "%s in it is damaged", object->file->name);
    place = (uintptr_t)it->image->base + object->places[to] + source.offset;
  }
  if (!target_of(it, object, &source, &target))
    return tw_fail(it->error, "%s in it is damaged", object->file->name);
  return tw_relocate(at, relocation->kind, target, place, relocation->is_in_place) ||
         tw_fail(it->error, "an address in its code is out of reach");
}

/* ---- all of it -------------------------------------------------------------------------------- */

static bool lay_out_all(linker *it) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (!lay_out(it, SHF_EXECINSTR)) return false;
  if (!it->image->size) return tw_fail(it->error, "there is no code in it");
  if (!for_each_relocation(it, prepare)) return false;
  if (!take_room(it, 0, page, NULL)) return false;
  it->code_end = it->image->size;
  if (!lay_out(it, 0) || !take_room(it, 0, page, NULL)) return false;
  it->data_begin = it->image->size;
  return lay_out(it, SHF_WRITE) && take_room(it, 0, page, NULL);
}

static bool protect(const linker *it) {
  uint8_t *base = it->image->base;
  if ((it->code_end && mprotect(base, it->code_end, PROT_READ | PROT_EXEC)) ||
      (it->data_begin > it->code_end &&
       mprotect(base + it->code_end, it->data_begin - it->code_end, PROT_READ)))
    return tw_fail(it->error, "the system lets this process make no code: %s", strerror(errno));
  __builtin___clear_cache((char *)base, (char *)base + it->code_end);
  return true;
}

bool tw_image_load(tw_image *image, tw_arena *arena, const tw_member *const *objects,
                   int32_t count, tw_error *error) {
  linker it = {.image = image, .count = (size_t)count, .error = error};
  it.objects = tw_take(arena, it.count, sizeof *it.objects);
  if (!it.objects) return tw_no_memory(error);
  for (size_t k = 0; k < it.count; k++)
    if (!tw_object_read(&it.objects[k], arena, objects[k], error)) return false;
  if (!collect_names(&it, arena) || !find_system_functions(&it) || !lay_out_all(&it)) return false;
  void *made = mmap(NULL, image->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return tw_no_memory(error);
  image->base = made;
  place_sections(&it);
  return place_symbols(&it) && for_each_relocation(&it, apply) && protect(&it);
}

void tw_image_unload(tw_image *image) {
  if (image->base) munmap(image->base, image->size);
  image->base = NULL;
}

uintptr_t tw_image_address(const tw_image *image, const char *name) {
  const struct tw_symbol *found = slot_of(image, name);
  return found->name && found->is_defined ? found->address : 0;
}
