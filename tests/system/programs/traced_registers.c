/* Traces a process and sets its extended registers with 64 bytes fewer than the processor has, as User-Mode Linux does
   on processors that have more than it knows. Prints what the first call answered (0, or errno), and whether the
   register that was changed and the last 64 bytes are then as they should be. */
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOM (1 << 20)
/* Of the first register of the x87 unit, and of the bits that say which registers the area has. */
#define ST0 32
#define HEADER 512

int main(void)
{
	unsigned char *given = calloc(1, ROOM), *found = calloc(1, ROOM);
	struct iovec area = {given, ROOM}, again = {found, ROOM};
	pid_t pid = fork();
	int answer;

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &area);
	given[ST0] = 0x5a;
	given[HEADER] |= 1;
	area.iov_len -= 64;
	answer = ptrace(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &area) < 0 ? errno : 0;
	ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &again);
	printf("%d %d %d\n", answer, found[ST0] == 0x5a, again.iov_len == area.iov_len + 64);
	kill(pid, SIGKILL);
	return 0;
}
