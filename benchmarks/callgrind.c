/* Marks for callgrind, called from Python by ctypes. Outside valgrind each of them does nothing. */
#include <valgrind/callgrind.h>

/* Count from here on, from zero. */
void start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }

/* Write what was counted as the profile `name`, and count no more. */
void stop(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }

/* Between both: leave out what comes now, or go on. */
void turn_over(void) { CALLGRIND_TOGGLE_COLLECT; }
