// The version of the library: the only place where it is written.
#ifndef CONTRASTIVE_VERSION_HPP
#define CONTRASTIVE_VERSION_HPP

#define CONTRASTIVE_VERSION_MAJOR 0
#define CONTRASTIVE_VERSION_MINOR 1
#define CONTRASTIVE_VERSION_PATCH 0

#endif  // CONTRASTIVE_VERSION_HPP
