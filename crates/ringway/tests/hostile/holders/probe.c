/* Says by its exit status whether the user nobody can hold locks by a page on this machine. */
#include "page.h"

int main(void)
{
	return hold_page(NULL, 0);
}
