/*
 * The first process of a pod's sandbox: it keeps the pod's namespaces alive, reaps what is orphaned in them
 * (it is process 1 where a pod shares its PID namespace), and leaves when told to.
 *
 * The signals stay blocked and are waited for: a blocked signal is delivered even to process 1, for which the
 * kernel drops unblocked ones that have no handler.
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
