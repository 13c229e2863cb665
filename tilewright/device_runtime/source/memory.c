/* Memory that is given back all at once, errors, and texts that grow. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct tw_block {
  struct tw_block *next;
  size_t used, size;
  /* What is taken begins behind this, at a multiple of 16. */
  size_t padding;
};

enum { BLOCK = 1 << 16 };

void *tw_take(tw_arena *arena, size_t count, size_t size) {
  if (size && count > (SIZE_MAX >> 2) / size) return NULL;
  size_t wanted = (count * size + 15) / 16 * 16;
  tw_block *block = arena->blocks;
  if (!block || block->size - block->used < wanted) {
    size_t room = wanted > BLOCK ? wanted : BLOCK;
    block = calloc(1, sizeof *block + room);
    if (!block) return NULL;
    block->size = room;
    block->next = arena->blocks;
    arena->blocks = block;
  }
  void *made = (char *)(block + 1) + block->used;
  block->used += wanted;
  return made;
}

char *tw_take_text(tw_arena *arena, const char *text, size_t size) {
  char *made = tw_take(arena, size + 1, 1);
  if (made && size) memcpy(made, text, size);
  return made;
}

void tw_give_back(tw_arena *arena) {
  while (arena->blocks) {
    tw_block *next = arena->blocks->next;
    free(arena->blocks);
    arena->blocks = next;
  }
}

bool tw_fail(tw_error *error, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(error->text, sizeof error->text, format, values);
  va_end(values);
  /* One line, whatever names in files hold. */
  for (char *at = error->text; *at; at++)
    if ((unsigned char)*at < ' ') *at = '?';
  return false;
}

bool tw_no_memory(tw_error *error) { return tw_fail(error, "there is not enough memory"); }

void tw_text_add(tw_text *text, const char *data, size_t size) {
  if (text->failed) return;
  if (text->room - text->size < size + 1) {
    size_t room = (text->size + size + 1) * 2;
    char *made = room > size ? realloc(text->data, room) : NULL;
    if (!made) {
      text->failed = true;
      return;
    }
    text->data = made;
    text->room = room;
  }
  memcpy(text->data + text->size, data, size);
  text->size += size;
  text->data[text->size] = 0;
}

void tw_text_print(tw_text *text, const char *format, ...) {
  char part[512];
  va_list values;
  va_start(values, format);
  int size = vsnprintf(part, sizeof part, format, values);
  va_end(values);
  if (size < 0 || (size_t)size >= sizeof part)
    text->failed = true;
  else
    tw_text_add(text, part, (size_t)size);
}

void tw_text_free(tw_text *text) {
  free(text->data);
  memset(text, 0, sizeof *text);
}
