/* Loaded into User-Mode Linux (LD_PRELOAD): the memory of the machine, a temporary file that is mapped as a whole, is
   memory without a file system, so that it does not depend on what /dev/shm has room for, 64 MiB in a container. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

int mkstemp(char *name)
{
	int (*next)(char *) = (int (*)(char *))dlsym(RTLD_NEXT, "mkstemp");
	/* The caller removes the file by its name. */
	int file = next(name), memory;

	if (file < 0)
		return file;
	memory = memfd_create("memory", MFD_CLOEXEC);
	if (memory < 0)
		return file;
	close(file);
	return memory;
}
