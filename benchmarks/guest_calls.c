/* Loaded into User-Mode Linux with its own library: counts the system calls of the programs inside by their number,
   in a file of unsigned 64-bit numbers, COUNTS (a string, given at compile time). User-Mode Linux reads the registers of
   a program whenever it stops: at a system call, or for a page fault (counted in the last place). */
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <unistd.h>

#define PLACES 512
/* Of the open file, for the programs that are executed afterwards: the last of them may not open it any more. */
#define FILE_NUMBER 198

/* What the kernel's library has for it (wide_registers.c). */
long ptrace_under(enum __ptrace_request request, ...);

static uint64_t *counts;

__attribute__((constructor)) static void map_counts(void)
{
	int file = open(COUNTS, O_RDWR);
	void *place;

	if (file >= 0)
		dup2(file, FILE_NUMBER);
	place = mmap(NULL, PLACES * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, FILE_NUMBER, 0);

	counts = place == MAP_FAILED ? NULL : place;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	pid_t pid;
	void *address, *data;
	long result;

	va_start(arguments, request);
	pid = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	result = ptrace_under(request, pid, address, data);
	if (counts && request == PTRACE_GETREGS && result == 0) {
		uint64_t call = ((struct user_regs_struct *)data)->orig_rax;
		counts[call < PLACES - 1 ? call : PLACES - 1]++;
	}
	return result;
}
