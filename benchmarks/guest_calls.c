/* Loaded into User-Mode Linux with its own library: writes a line for each system call and page fault of the programs
   inside to a file, CALLS (a string, given at compile time): process, number (-1: a page fault), and the program that an
   execve names. User-Mode Linux reads the registers of a traced program whenever it stops. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

#define NAME_BYTES 128
#define PAGE_BYTES 4096
/* Of the open file, for the programs that are executed afterwards: the last of them may not open it any more. */
#define FILE_NUMBER 198

/* What the kernel's library has for it (wide_registers.c). */
long ptrace_under(enum __ptrace_request request, ...);

__attribute__((constructor)) static void open_calls(void)
{
	int file = open(CALLS, O_RDWR | O_APPEND);

	if (file >= 0)
		dup2(file, FILE_NUMBER);
}

/* The text at an address of a process, as far as its page. */
static void read_text(pid_t pid, unsigned long address, char *text)
{
	size_t left = PAGE_BYTES - address % PAGE_BYTES;
	struct iovec to = {text, left < NAME_BYTES ? left : NAME_BYTES}, from = {(void *)address, to.iov_len};

	if (process_vm_readv(pid, &to, 1, &from, 1, 0) < 0)
		text[0] = 0;
}

long ptrace(enum __ptrace_request request, ...)
{
	char line[NAME_BYTES + 64], text[NAME_BYTES + 1] = "";
	struct user_regs_struct *registers;
	va_list arguments;
	pid_t pid;
	void *address, *data;
	long result;
	int length;

	va_start(arguments, request);
	pid = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	result = ptrace_under(request, pid, address, data);
	if (request == PTRACE_GETREGS && result == 0) {
		registers = data;
		if (registers->orig_rax == SYS_execve)
			read_text(pid, registers->rdi, text);
		length = snprintf(line, sizeof line, "%d %ld %s\n", pid, (long)registers->orig_rax, text);
		if (write(FILE_NUMBER, line, length) < 0)
			_exit(1);
	}
	return result;
}
