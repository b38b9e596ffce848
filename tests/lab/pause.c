/*
 * The init process of a pod's sandbox. It keeps the pod's namespaces alive, reaps orphaned processes (it is
 * process 1 if the pod shares its PID namespace), and exits on SIGTERM or SIGINT.
 *
 * The signals stay blocked, and sigwait receives them: the kernel delivers a blocked signal even to process 1,
 * but drops an unblocked one without a handler.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void)
{
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
		return 1;
	for (;;) {
		if (sigwait(&set, &sig) != 0)
			return 1;
		if (sig != SIGCHLD)
			return 0;
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}
