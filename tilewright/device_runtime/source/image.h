/* Object files on their way into memory. */
#ifndef TILEWRIGHT_IMAGE_H
#define TILEWRIGHT_IMAGE_H

#include <elf.h>

#include "internal.h"

#if UINTPTR_MAX > 0xffffffffu
typedef Elf64_Ehdr elf_header;
typedef Elf64_Shdr elf_section;
typedef Elf64_Sym elf_symbol;
typedef Elf64_Rela elf_rela;
typedef Elf64_Rel elf_rel;
#define ELF_CLASS ELFCLASS64
#define RELOCATION_SYMBOL(info) ((size_t)ELF64_R_SYM(info))
#define RELOCATION_KIND(info) ((uint32_t)ELF64_R_TYPE(info))
#else
typedef Elf32_Ehdr elf_header;
typedef Elf32_Shdr elf_section;
typedef Elf32_Sym elf_symbol;
typedef Elf32_Rela elf_rela;
typedef Elf32_Rel elf_rel;
#define ELF_CLASS ELFCLASS32
#define RELOCATION_SYMBOL(info) ((size_t)ELF32_R_SYM(info))
#define RELOCATION_KIND(info) ((uint32_t)ELF32_R_TYPE(info))
#endif
#define BINDING(info) ((info) >> 4)

/* One file, taken apart; all that it says was held against its size. */
typedef struct tw_object {
  const tw_member *file;
  elf_section *sections;
  size_t section_count;
  elf_symbol *symbols;
  size_t symbol_count;
  const char *names;
  /* Where sections lie in the image, SIZE_MAX for those that are not loaded; where the jumps to
     local symbols lie. */
  size_t *places, *jumps;
} tw_object;

/* A name that several files share. */
struct tw_symbol {
  const char *name;
  /* Where it lies in the image, or in the system; where a jump to it lies in the image. */
  uintptr_t address;
  size_t jump;
  bool is_defined, is_needed;
};

typedef struct tw_relocation {
  size_t offset, symbol;
  uint32_t kind;
  int64_t addend;
  /* The addend lies where the relocation applies. */
  bool is_in_place;
} tw_relocation;

bool tw_object_read(tw_object *object, tw_arena *arena, const tw_member *file, tw_error *error);
/* How many relocations a section has, 0 for other kinds of sections; `to` is where they apply. */
size_t tw_relocation_count(const tw_object *object, size_t section, size_t *to);
tw_relocation tw_relocation_at(const tw_object *object, size_t section, size_t number);

/* ---- machines --------------------------------------------------------------------------------- */

/* What the address is of that a relocation writes: the symbol, a jump to it where it is far, or the
   place where its address is written. */
typedef enum { TW_UNKNOWN, TW_NOTHING, TW_SYMBOL, TW_JUMP, TW_WRITTEN } tw_aim;

extern const uint16_t tw_machine;
/* A jump: instructions, and at `tw_jump_word` the address that they go to. */
enum { TW_JUMP_BYTES = 32 };
extern const uint8_t tw_jump_code[];
extern const size_t tw_jump_size, tw_jump_word;

tw_aim tw_relocation_aim(uint32_t kind);
/* How many bytes it changes. */
size_t tw_relocation_bytes(uint32_t kind);
/* Change the bytes at `at`, which lie at the address `place`; false where `target` is out of reach.
   `target` has the addend in it, but for addends in place. */
bool tw_relocate(uint8_t *at, uint32_t kind, uintptr_t target, uintptr_t place, bool is_in_place);
/* Some relocations name the instruction that has the other half of the address; where is it? */
bool tw_relocation_is_low_half(uint32_t kind);

#endif
