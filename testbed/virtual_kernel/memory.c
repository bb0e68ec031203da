/* Loaded into User-Mode Linux (LD_PRELOAD): the memory of the machine, a temporary file without a name that is mapped as
   a whole, is memory without a file system, so that it does not depend on what /dev/shm has room for, 64 MiB in a
   container, and that no disk writes it back. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>

int open64(const char *name, int flags, ...)
{
	int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
	int memory = (flags & O_TMPFILE) == O_TMPFILE ? memfd_create("memory", MFD_CLOEXEC) : -1;
	va_list more;
	mode_t mode;

	if (memory >= 0)
		return memory;
	/* Where the caller gives no mode, what is read here is not looked at. */
	va_start(more, flags);
	mode = va_arg(more, mode_t);
	va_end(more);
	return next(name, flags, mode);
}
