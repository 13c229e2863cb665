"""Lists of tensors in C: sequences and optionals at run time.

The layout is that of `codegen.llvm.lists`, in words of eight bytes:

    list    references; number of items; capacity; the address of each item
    item    references; the address of its elements; its rank; its dimensions; elements of its own
"""

from __future__ import annotations

from typing import Final

#: Bytes of a list without items.
EMPTY_BYTES: Final = 24

LISTS: Final = """\
static inline void tw_list_drop(uint64_t *item) {
  if (--item[0] == 0) free(item);
}

static inline void tw_list_release(uint64_t *list) {
  if (list == NULL || --list[0] != 0) return;
  for (uint64_t k = 0; k < list[1]; ++k) tw_list_drop((uint64_t *)(uintptr_t)list[3 + k]);
  free(list);
}

static inline uint64_t *tw_list_refer(uint64_t *list) {
  if (list != NULL) ++list[0];
  return list;
}

static inline uint64_t *tw_list_empty(void) {
  uint64_t *const made = malloc(24);
  if (made != NULL) made[0] = 1, made[1] = 0, made[2] = 0;
  return made;
}

/* A list with this capacity to which nothing else refers, copied where it has to be; NULL: no
   memory. */
static inline uint64_t *tw_list_unique(uint64_t *list, uint64_t capacity) {
  const bool unique = list[0] == 1;
  if (unique && capacity <= list[2]) return list;
  const uint64_t more = capacity + capacity / 2 + 4;
  const size_t bytes = (size_t)(24 + 8 * more);
  uint64_t *const made = unique ? realloc(list, bytes) : malloc(bytes);
  if (made == NULL) return NULL;
  made[2] = more;
  if (unique) return made;
  made[0] = 1;
  made[1] = list[1];
  for (uint64_t k = 0; k < list[1]; ++k) {
    made[3 + k] = list[3 + k];
    ++*(uint64_t *)(uintptr_t)list[3 + k];
  }
  --list[0];
  return made;
}

/* A new item with room for its elements; NULL: no memory. */
static inline uint64_t *tw_list_insert(
    uint64_t **slot, int64_t position, int64_t bytes, int64_t rank) {
  const uint64_t header = 24 + 64 + 8 * (uint64_t)rank;
  uint64_t *const item = malloc((size_t)(header + (uint64_t)bytes));
  if (item == NULL) return NULL;
  const uint64_t count = (*slot)[1];
  uint64_t *const list = tw_list_unique(*slot, count + 1);
  if (list == NULL) {
    free(item);
    return NULL;
  }
  *slot = list;
  memmove(list + 4 + position, list + 3 + position, (size_t)(8 * (count - (uint64_t)position)));
  list[3 + position] = (uint64_t)(uintptr_t)item;
  list[1] = count + 1;
  item[0] = 1;
  item[1] = ((uint64_t)(uintptr_t)item + header - 1) & ~(uint64_t)63;
  item[2] = (uint64_t)rank;
  return item;
}

static inline bool tw_list_erase(uint64_t **slot, int64_t position) {
  const uint64_t count = (*slot)[1];
  uint64_t *const list = tw_list_unique(*slot, count);
  if (list == NULL) return false;
  *slot = list;
  tw_list_drop((uint64_t *)(uintptr_t)list[3 + position]);
  memmove(list + 3 + position, list + 4 + position, (size_t)(8 * (count - 1 - (uint64_t)position)));
  list[1] = count - 1;
  return true;
}
"""
