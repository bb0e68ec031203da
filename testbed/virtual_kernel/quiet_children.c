/* Loaded into User-Mode Linux (LD_PRELOAD): keeps the ends of its child processes from interrupting it.

   With seccomp, each address space inside is a process of its own, and User-Mode Linux takes the signal of its end
   (SIGCHLD) for an interrupt. It comes at a moment that depends on the machine, and Linux mixes the moments and
   instruction pointers of interrupts into its entropy. User-Mode Linux ends these processes itself and waits for them,
   so it needs the signal only for one that ended otherwise: then the run ends here, with a sentence. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static void child_ended(int number, siginfo_t *info, void *context)
{
	static const char sentence[] = "a program's process ended unexpectedly, perhaps for lack of memory\n";

	(void)number;
	(void)context;
	if (info->si_code == CLD_KILLED && info->si_status == SIGKILL)
		return;
	if (write(STDERR_FILENO, sentence, sizeof(sentence) - 1) < 0)
		_exit(2);
	_exit(1);
}

int sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
	static int (*next)(int, const struct sigaction *, struct sigaction *);
	struct sigaction own;

	if (!next)
		next = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
	if (number != SIGCHLD || !action)
		return next(number, action, before);
	own = *action;
	own.sa_sigaction = child_ended;
	own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NOCLDSTOP;
	return next(number, &own, before);
}
