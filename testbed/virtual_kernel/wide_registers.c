/* Loaded into User-Mode Linux (LD_PRELOAD), which knows the registers of AVX-512 and none wider: lets it run on
   processors that have wider ones, such as AMX. Linux accepts the extended registers of a traced process only in the
   length that the processor has, and User-Mode Linux sets those that it knows (HOST_FP_SIZE). The others are set to
   zero: no program inside can use them, because the kernel inside grants no permission to. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* More than any processor has. */
#define MOST_BYTES (1 << 20)

/* The registers in the length that the processor has; zero behind those that were set last. */
static struct iovec whole;

static long raw(long request, pid_t pid, void *address, void *data)
{
	return syscall(SYS_ptrace, request, pid, address, data);
}

/* Finds the processor's length. */
static int measure(pid_t pid)
{
	struct iovec all = {calloc(1, MOST_BYTES), MOST_BYTES};

	if (!all.iov_base || raw(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &all) < 0) {
		free(all.iov_base);
		return 0;
	}
	memset(all.iov_base, 0, all.iov_len);
	whole = all;
	return 1;
}

static long set_extended(pid_t pid, const struct iovec *given)
{
	struct iovec all;
	long result;

	if (!whole.iov_base) {
		result = raw(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, (void *)given);
		if (result == 0 || errno != EFAULT || !measure(pid))
			return result;
	}
	if (given->iov_len > whole.iov_len) {
		errno = EFAULT;
		return -1;
	}
	memcpy(whole.iov_base, given->iov_base, given->iov_len);
	all = whole;
	return raw(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	pid_t pid;
	void *address, *data;
	long result, word;

	va_start(arguments, request);
	pid = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE)
		return set_extended(pid, data);
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		/* The system call stores the word, and the library's function returns it. */
		result = raw(request, pid, address, &word);
		return result < 0 ? result : word;
	}
	return raw(request, pid, address, data);
}
