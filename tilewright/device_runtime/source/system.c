/* The functions of the system that compiled code may call. A static program has no table of its
   symbols, so they are listed: what the code generator asks of an operating system, mathematics,
   and what compilers call for arithmetic that a machine lacks. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* Their types do not matter here: only addresses are taken. */
#define RUNTIME(name) extern void name(void)
#if defined(__arm__)
RUNTIME(__aeabi_l2d);
RUNTIME(__aeabi_l2f);
RUNTIME(__aeabi_ul2d);
RUNTIME(__aeabi_ul2f);
RUNTIME(__aeabi_d2lz);
RUNTIME(__aeabi_f2lz);
RUNTIME(__aeabi_d2ulz);
RUNTIME(__aeabi_f2ulz);
RUNTIME(__aeabi_ldivmod);
RUNTIME(__aeabi_uldivmod);
RUNTIME(__aeabi_idiv);
RUNTIME(__aeabi_uidiv);
RUNTIME(__aeabi_idivmod);
RUNTIME(__aeabi_uidivmod);
RUNTIME(__aeabi_llsl);
RUNTIME(__aeabi_llsr);
RUNTIME(__aeabi_lasr);
RUNTIME(__aeabi_lmul);
#else
RUNTIME(__divti3);
RUNTIME(__modti3);
RUNTIME(__multi3);
RUNTIME(__udivti3);
RUNTIME(__umodti3);
#endif
#if !defined(__GNUC__) || defined(__clang__)
RUNTIME(__extendhfsf2);
RUNTIME(__truncsfhf2);
RUNTIME(__truncdfhf2);
#endif

/* Tables for unwinding name it; nothing throws through compiled code. */
static void unwind_nothing(void) {}

static const struct {
  const char *name;
  void (*address)(void);
} functions[] = {
#define FUNCTION(name) {#name, (void (*)(void))name}
    FUNCTION(clock_gettime),
    FUNCTION(free),
    FUNCTION(getpid),
    FUNCTION(madvise),
    FUNCTION(malloc),
    FUNCTION(memcpy),
    FUNCTION(memmove),
    FUNCTION(memset),
    FUNCTION(mmap),
    FUNCTION(munmap),
    FUNCTION(posix_memalign),
    FUNCTION(pthread_cond_init),
    FUNCTION(pthread_cond_signal),
    FUNCTION(pthread_cond_wait),
    FUNCTION(pthread_create),
    FUNCTION(pthread_join),
    FUNCTION(pthread_mutex_init),
    FUNCTION(pthread_mutex_lock),
    FUNCTION(pthread_mutex_unlock),
    FUNCTION(pthread_setaffinity_np),
    FUNCTION(pthread_setname_np),
    FUNCTION(pthread_sigmask),
    FUNCTION(realloc),
    FUNCTION(sched_getaffinity),
    FUNCTION(sched_yield),
    FUNCTION(sigfillset),
    FUNCTION(sysconf),
#define MATH(name) FUNCTION(name), FUNCTION(name##f)
    MATH(acos),
    MATH(acosh),
    MATH(asin),
    MATH(asinh),
    MATH(atan),
    MATH(atan2),
    MATH(atanh),
    MATH(cbrt),
    MATH(ceil),
    MATH(cos),
    MATH(cosh),
    MATH(erf),
    MATH(erfc),
    MATH(exp),
    MATH(exp2),
    MATH(expm1),
    MATH(fabs),
    MATH(floor),
    MATH(fma),
    MATH(fmax),
    MATH(fmin),
    MATH(fmod),
    MATH(ldexp),
    MATH(lgamma),
    MATH(log),
    MATH(log10),
    MATH(log1p),
    MATH(log2),
    MATH(nearbyint),
    MATH(pow),
    MATH(rint),
    MATH(round),
    MATH(sin),
    MATH(sinh),
    MATH(sqrt),
    MATH(tan),
    MATH(tanh),
    MATH(tgamma),
    MATH(trunc),
#if defined(__arm__)
    FUNCTION(__aeabi_l2d),
    FUNCTION(__aeabi_l2f),
    FUNCTION(__aeabi_ul2d),
    FUNCTION(__aeabi_ul2f),
    FUNCTION(__aeabi_d2lz),
    FUNCTION(__aeabi_f2lz),
    FUNCTION(__aeabi_d2ulz),
    FUNCTION(__aeabi_f2ulz),
    FUNCTION(__aeabi_ldivmod),
    FUNCTION(__aeabi_uldivmod),
    FUNCTION(__aeabi_idiv),
    FUNCTION(__aeabi_uidiv),
    FUNCTION(__aeabi_idivmod),
    FUNCTION(__aeabi_uidivmod),
    FUNCTION(__aeabi_llsl),
    FUNCTION(__aeabi_llsr),
    FUNCTION(__aeabi_lasr),
    FUNCTION(__aeabi_lmul),
    {"__aeabi_memcpy", (void (*)(void))memcpy},
    {"__aeabi_memcpy4", (void (*)(void))memcpy},
    {"__aeabi_memcpy8", (void (*)(void))memcpy},
    {"__aeabi_memmove", (void (*)(void))memmove},
    {"__aeabi_unwind_cpp_pr0", unwind_nothing},
    {"__aeabi_unwind_cpp_pr1", unwind_nothing},
#else
    FUNCTION(__divti3),
    FUNCTION(__modti3),
    FUNCTION(__multi3),
    FUNCTION(__udivti3),
    FUNCTION(__umodti3),
#endif
#if !defined(__GNUC__) || defined(__clang__)
    FUNCTION(__extendhfsf2),
    FUNCTION(__truncsfhf2),
    FUNCTION(__truncdfhf2),
#endif
    {"", unwind_nothing},
};

uintptr_t tw_system_function(const char *name) {
  for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
    if (*name && !strcmp(functions[k].name, name)) return (uintptr_t)functions[k].address;
  return 0;
}
