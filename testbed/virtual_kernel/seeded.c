/* Loaded into User-Mode Linux (LD_PRELOAD): the entropy that the kernel asks of its host comes from a seed, so that
   everything the kernel draws (initial sequence numbers, ports, hash keys, address layouts) repeats with it.
   splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

static uint64_t state;
static int ready;

static uint64_t next(void)
{
	uint64_t z;

	if (!ready) {
		const char *seed = getenv("BACKCHANNEL_KERNEL_SEED");
		state = seed ? strtoull(seed, NULL, 10) : 0;
		ready = 1;
	}
	z = (state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
	unsigned char *at = buffer;
	size_t written;

	(void)flags;
	for (written = 0; written < length; written++)
		at[written] = (unsigned char)next();
	return (ssize_t)length;
}
