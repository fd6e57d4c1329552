package filter

// Version numbers what filters mean. It is raised whenever an accepted filter can
// answer otherwise for some event than it did before: answers that were stored with
// another Version are not used any more. A filter that was refused and is not any
// more needs no new number.
const Version = 1
