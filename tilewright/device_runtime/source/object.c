/* Relocatable ELF files, taken apart. They are hostile until checked. */
#include <string.h>

#include "image.h"

static bool damaged(tw_error *error, const tw_object *object) {
  return tw_fail(error, "%s in it is damaged", object->file->name);
}

/* Whether so many things lie inside the file. */
static bool is_inside(const tw_object *object, uint64_t offset, uint64_t count, uint64_t size) {
  uint64_t whole = object->file->size;
  return offset <= whole && count <= whole && count * size <= whole - offset;
}

/* A copy, which is aligned whatever the file says. */
static void *copied(const tw_object *object, tw_arena *arena, uint64_t offset, size_t count,
                    size_t size) {
  void *made = tw_take(arena, count, size);
  if (made && count) memcpy(made, object->file->data + offset, count * size);
  return made;
}

static bool read_sections(tw_object *object, tw_arena *arena, tw_error *error) {
  elf_header head;
  if (object->file->size < sizeof head) return damaged(error, object);
  memcpy(&head, object->file->data, sizeof head);
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELF_CLASS ||
      head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_type != ET_REL || head.e_machine != tw_machine)
    return tw_fail(error, "%s in it is no object code for this machine", object->file->name);
  if (head.e_shentsize != sizeof *object->sections || !head.e_shnum ||
      !is_inside(object, head.e_shoff, head.e_shnum, sizeof *object->sections))
    return damaged(error, object);
  object->section_count = head.e_shnum;
  object->sections = copied(object, arena, head.e_shoff, head.e_shnum, sizeof *object->sections);
  object->places = tw_take(arena, head.e_shnum, sizeof *object->places);
  if (!object->sections || !object->places) return tw_no_memory(error);
  for (size_t k = 0; k < object->section_count; k++) {
    const elf_section *section = &object->sections[k];
    bool has_data = section->sh_type != SHT_NOBITS && section->sh_type != SHT_NULL;
    if (has_data && !is_inside(object, section->sh_offset, section->sh_size, 1))
      return damaged(error, object);
  }
  return true;
}

/* Texts one after the other, of which the last one ends. */
static const char *texts_in(const tw_object *object, size_t section, size_t *size) {
  if (section >= object->section_count) return NULL;
  const elf_section *found = &object->sections[section];
  if (found->sh_type != SHT_STRTAB || !found->sh_size) return NULL;
  const char *texts = (const char *)object->file->data + found->sh_offset;
  *size = (size_t)found->sh_size;
  return texts[*size - 1] ? NULL : texts;
}

static bool read_symbols(tw_object *object, tw_arena *arena, tw_error *error) {
  size_t k = 0, size = 0;
  while (k < object->section_count && object->sections[k].sh_type != SHT_SYMTAB) k++;
  if (k == object->section_count) return true;
  const elf_section *table = &object->sections[k];
  object->symbol_count = (size_t)(table->sh_size / sizeof *object->symbols);
  object->names = texts_in(object, table->sh_link, &size);
  if (!object->names) return damaged(error, object);
  object->symbols =
      copied(object, arena, table->sh_offset, object->symbol_count, sizeof *object->symbols);
  object->jumps = tw_take(arena, object->symbol_count, sizeof *object->jumps);
  if (!object->symbols || !object->jumps) return tw_no_memory(error);
  for (k = 0; k < object->symbol_count; k++) {
    const elf_symbol *symbol = &object->symbols[k];
    bool is_placed = symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS ||
                     symbol->st_shndx < object->section_count;
    if (symbol->st_name >= size || !is_placed) return damaged(error, object);
    if (symbol->st_shndx && symbol->st_shndx != SHN_ABS &&
        symbol->st_value > object->sections[symbol->st_shndx].sh_size)
      return damaged(error, object);
  }
  return true;
}

/* Code needs neither tables for unwinding nor notes. */
static bool is_loaded(const elf_section *section, const char *name) {
  return section->sh_flags & SHF_ALLOC && section->sh_type != SHT_NOTE &&
         strcmp(name, ".eh_frame") && strncmp(name, ".ARM.ex", 7);
}

static bool mark_loaded(tw_object *object, tw_error *error) {
  elf_header head;
  size_t size = 0;
  memcpy(&head, object->file->data, sizeof head);
  const char *names = texts_in(object, head.e_shstrndx, &size);
  if (!names) return damaged(error, object);
  for (size_t k = 0; k < object->section_count; k++) {
    const elf_section *section = &object->sections[k];
    if (section->sh_name >= size) return damaged(error, object);
    object->places[k] = SIZE_MAX;
    if (!is_loaded(section, names + section->sh_name)) continue;
    bool is_plain = section->sh_type == SHT_PROGBITS || section->sh_type == SHT_NOBITS;
    uint64_t alignment = section->sh_addralign ? section->sh_addralign : 1;
    if (!is_plain || section->sh_flags & SHF_TLS || alignment & (alignment - 1) ||
        alignment > 4096 || section->sh_size > (uint64_t)1 << 30)
      return tw_fail(error, "%s in it has a section %s that cannot be loaded", object->file->name,
                     names + section->sh_name);
    object->places[k] = 0;
  }
  return true;
}

bool tw_object_read(tw_object *object, tw_arena *arena, const tw_member *file, tw_error *error) {
  object->file = file;
  if (!read_sections(object, arena, error) || !read_symbols(object, arena, error)) return false;
  return mark_loaded(object, error);
}

size_t tw_relocation_count(const tw_object *object, size_t section, size_t *to) {
  const elf_section *found = &object->sections[section];
  *to = found->sh_info;
  if (found->sh_type == SHT_RELA) return (size_t)(found->sh_size / sizeof(elf_rela));
  return found->sh_type == SHT_REL ? (size_t)(found->sh_size / sizeof(elf_rel)) : 0;
}

tw_relocation tw_relocation_at(const tw_object *object, size_t section, size_t number) {
  const elf_section *found = &object->sections[section];
  const uint8_t *data = object->file->data + found->sh_offset;
  elf_rela row = {0};
  bool is_in_place = found->sh_type == SHT_REL;
  size_t size = is_in_place ? sizeof(elf_rel) : sizeof row;
  memcpy(&row, data + number * size, size);
  return (tw_relocation){(size_t)row.r_offset, RELOCATION_SYMBOL(row.r_info),
                         RELOCATION_KIND(row.r_info), row.r_addend, is_in_place};
}
